{{/* Wrong combinations are refused by name, all of them at one time. Each message says what to change. */}}

{{- define "envoy-harmony.validate" -}}
{{- $errors := list -}}
{{- range list "image" "engines" "config" "store" "secrets" "tls" "loopbackTLS" "records" "scale" "rest" -}}
{{- $errors = concat $errors (include (printf "envoy-harmony.%sErrors" .) $ | fromJsonArray) -}}
{{- end -}}
{{- $errors = concat $errors (include "envoy-harmony.gateway.errors" . | fromJsonArray) -}}
{{- if $errors -}}
{{- fail (printf "\n\nThe values of envoy-harmony cannot be used:\n- %s\n" (join "\n- " $errors)) -}}
{{- end -}}
{{- end -}}

{{- define "envoy-harmony.imageErrors" -}}
{{- $errors := list -}}
{{- $image := .Values.image -}}
{{- if not (and $image.repository (or $image.tag $image.digest)) -}}
{{- $errors = append $errors "image: no image is published yet, so that there is no default: build one with \"make image\" (docs/release.md), push it to a registry that your cluster reads, and set image.repository and image.tag, or image.digest" -}}
{{- end -}}
{{- $simulator := .Values.simulator.image -}}
{{- if and .Values.simulate $image.digest (not (or $image.tag $simulator.tag $simulator.digest)) -}}
{{- $errors = append $errors "simulator.image: the filter's image has a digest, which is not the simulated engine's: set simulator.image.tag or simulator.image.digest" -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "envoy-harmony.enginesErrors" -}}
{{- $errors := list -}}
{{- $names := list -}}
{{- if .Values.simulate -}}
{{- if .Values.engines -}}
{{- $errors = append $errors "simulate: answers would come from the simulated engine or from a real one, and nobody could tell which: leave engines out, or set simulate: false" -}}
{{- end -}}
{{- else if not .Values.engines -}}
{{- $errors = append $errors "engines: name at least one engine, such as [{kind: vllm, service: {name: vllm, port: 8000}}], or try the chart without one: simulate: true" -}}
{{- end -}}
{{- range $i, $engine := .Values.engines -}}
{{- $path := printf "engines[%d]" $i -}}
{{- $name := default $engine.kind $engine.name -}}
{{- if has $name $names -}}
{{- $errors = append $errors (printf "%s.name: %q is used twice; each engine needs a name of its own" $path $name) -}}
{{- end -}}
{{- $names = append $names $name -}}
{{- if and (eq $.Values.mode "sidecar") (not $engine.service) (not $engine.urls) -}}
{{- $errors = append $errors (printf "%s: write where the engine is: service: {name, port}, or urls" $path) -}}
{{- end -}}
{{- if and (ne $.Values.gateway.provider "none") (not $engine.service) (not $engine.inferencePool) -}}
{{- $errors = append $errors (printf "%s: write where the engine is: service: {name, port}, or inferencePool: {name}" $path) -}}
{{- end -}}
{{- if and $engine.service $engine.urls -}}
{{- $errors = append $errors (printf "%s: has a service and urls; leave one out" $path) -}}
{{- end -}}
{{- if and $engine.prefill (not (include "envoy-harmony.loopbackAddress" $)) -}}
{{- $errors = append $errors (printf "%s.prefill: prefill endpoints are reached through the loopback listener, and there is none: set gateway.loopback.enabled, and with gateway.provider none gateway.loopback.address" $path) -}}
{{- end -}}
{{- range $j, $prefill := $engine.prefill -}}
{{- if not $prefill.service -}}
{{- $errors = append $errors (printf "%s.prefill[%d]: write where it is: service: {name, port}" $path $j) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{/* Keys of config that have a value of their own, and what needs the loopback listener. */}}
{{- define "envoy-harmony.configErrors" -}}
{{- $errors := list -}}
{{- $config := .Values.config -}}
{{- $own := dict "engines" "engines" "listen" "service.port" "admin" "adminPort" "loopback" "gateway.loopback" "loopback_tls" "gateway.loopback.tls" "store_url" "store.url or store.existingSecret" "tls" "tls" -}}
{{- $sockets := ternary (list "listen" "loopback" "loopback_tls" "tls") list (eq .Values.mode "sidecar") -}}
{{- $port := "clients connect to Envoy, at sidecar.envoy.port and sidecar.service.port" -}}
{{- if include "envoy-harmony.patched" . -}}{{- $port = "clients connect to your Envoy, at its port" -}}{{- end -}}
{{- range $key, $value := $own -}}
{{- if and (hasKey $config $key) (has $key $sockets) -}}
{{- $errors = append $errors (printf "config.%s: in mode sidecar the filter and Envoy speak over Unix sockets of the pod: leave it out; %s" $key $port) -}}
{{- else if hasKey $config $key -}}
{{- $errors = append $errors (printf "config.%s: set %s in its place" $key $value) -}}
{{- end -}}
{{- end -}}
{{- if hasKey (default dict $config.responses) "seal_keys" -}}
{{- $errors = append $errors "config.responses.seal_keys: would stand in a ConfigMap; set sealKeys.keys or sealKeys.existingSecret" -}}
{{- end -}}
{{- if hasKey (default dict $config.record) "folder" -}}
{{- $errors = append $errors "config.record.folder: set records.enabled in its place" -}}
{{- end -}}
{{- if hasKey (default dict $config.inspector) "enabled" -}}
{{- $errors = append $errors "config.inspector.enabled: set inspector.enabled in its place" -}}
{{- end -}}
{{- if hasKey (default dict $config.websocket) "listen" -}}
{{- $errors = append $errors (printf "config.websocket.listen: set websocket.enabled%s in its place" (ternary "" " and websocket.port" (eq .Values.mode "sidecar"))) -}}
{{- end -}}
{{- if hasKey (default dict $config.inspector) "token" -}}
{{- $errors = append $errors "config.inspector.token: would stand in a ConfigMap; set inspector.existingSecret" -}}
{{- end -}}
{{- if not (include "envoy-harmony.loopbackAddress" .) -}}
{{- $fix := "there is none: set gateway.loopback.enabled, and with gateway.provider none gateway.loopback.address" -}}
{{- $tools := default dict $config.tools -}}
{{- if or $tools.servers $tools.allowed_hosts -}}
{{- $errors = append $errors (printf "config.tools: tools need the loopback listener, and %s" $fix) -}}
{{- end -}}
{{- if gt (int (dig "limits" "max_background" 0 $config)) 0 -}}
{{- $errors = append $errors (printf "config.limits.max_background: background responses need the loopback listener, and %s" $fix) -}}
{{- end -}}
{{- if .Values.websocket.enabled -}}
{{- $errors = append $errors (printf "websocket.enabled: responses over WebSocket need the loopback listener, and %s" $fix) -}}
{{- end -}}
{{- range $m := append (default list $config.models) (default dict $config.model_defaults) -}}
{{- if eq (toString $m.effort_updates) "keep_prefix" -}}
{{- $errors = append $errors (printf "config: effort_updates: keep_prefix needs the loopback listener, and %s" $fix) -}}
{{- end -}}
{{- end -}}
{{- if eq (toString $config.unknown_tools) "model" -}}
{{- $errors = append $errors (printf "config.unknown_tools: model needs the loopback listener, and %s" $fix) -}}
{{- end -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "envoy-harmony.storeErrors" -}}
{{- $errors := list -}}
{{- $store := .Values.store -}}
{{- $kind := include "envoy-harmony.storeKind" . -}}
{{- if and $store.existingSecret (ne $store.url "memory:") -}}
{{- $errors = append $errors "store: has a url and an existingSecret; leave one out" -}}
{{- end -}}
{{- if not (or $store.existingSecret $store.url) -}}
{{- $errors = append $errors "store.url: must not be empty: write memory:, sqlite:PATH, redis://… or postgres://…" -}}
{{- end -}}
{{- $whose := "" -}}
{{- if include "envoy-harmony.patched" . -}}
{{- $whose = "sidecars (sidecar.envoy.enabled: false), of which there may be several" -}}
{{- else if .Values.autoscaling.enabled -}}
{{- $whose = "autoscaling" -}}
{{- else if gt (int .Values.replicaCount) 1 -}}
{{- $whose = printf "%d replicas" (int .Values.replicaCount) -}}
{{- end -}}
{{- $stored := or (ne (toString (dig "responses" "store_bytes" "default" .Values.config)) "0") (ne (toString (dig "limits" "kept_reasoning_bytes" "default" .Values.config)) "0") -}}
{{- if and $whose (eq $kind "memory") $stored -}}
{{- $errors = append $errors (printf "store.url: memory: cannot serve %s, because a client's next request may reach a replica that does not know the last one: set a redis:// or postgres:// URL, or, if nothing has to be stored, config.responses.store_bytes: 0 and config.limits.kept_reasoning_bytes: 0" $whose) -}}
{{- end -}}
{{- if and $whose (eq $kind "sqlite") -}}
{{- $errors = append $errors (printf "store.url: sqlite: cannot serve %s, because its file is on one machine: set a redis:// or postgres:// URL" $whose) -}}
{{- end -}}
{{- if and (eq $kind "sqlite") (not $store.persistence.enabled) (not .Values.extraVolumeMounts) -}}
{{- $errors = append $errors "store.url: sqlite: needs a volume: set store.persistence.enabled and store.url: sqlite:/var/lib/envoy-harmony/store.db" -}}
{{- end -}}
{{- if and $store.persistence.enabled (ne $kind "sqlite") -}}
{{- $errors = append $errors "store.persistence: is for sqlite: set store.url: sqlite:/var/lib/envoy-harmony/store.db, or store.persistence.enabled: false" -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "envoy-harmony.secretsErrors" -}}
{{- $errors := list -}}
{{- if and .Values.sealKeys.keys .Values.sealKeys.existingSecret -}}
{{- $errors = append $errors "sealKeys: has keys and an existingSecret; leave one out" -}}
{{- end -}}
{{- if and (include "envoy-harmony.severalReplicas" .) (not .Values.sealKeys.keys) (not .Values.sealKeys.existingSecret) -}}
{{- $errors = append $errors "sealKeys: several replicas need the same keys, or none can read what another has sealed: set sealKeys.existingSecret, or sealKeys.keys to the output of \"openssl rand -base64 32\"" -}}
{{- end -}}
{{- range $i, $secret := .Values.toolSecrets -}}
{{- if and $secret.value $secret.existingSecret -}}
{{- $errors = append $errors (printf "toolSecrets[%d]: %s has a value and an existingSecret; leave one out" $i $secret.env) -}}
{{- else if not (or $secret.value $secret.existingSecret) -}}
{{- $errors = append $errors (printf "toolSecrets[%d]: %s has no value: set existingSecret and key, or value" $i $secret.env) -}}
{{- end -}}
{{- end -}}
{{- range $i, $server := dig "tools" "servers" list .Values.config -}}
{{- range $member := list "headers" "env" -}}
{{- range $name, $value := default dict (get $server $member) -}}
{{- /* What has a variable in it may have a part such as "Bearer " beside. */ -}}
{{- if not (contains "${" (toString $value)) -}}
{{- $errors = append $errors (printf "config.tools.servers[%d].%s.%s: would stand in a ConfigMap; write ${NAME} there, and name its Secret in toolSecrets: [{env: NAME, existingSecret: SECRET, key: KEY}]" $i $member $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := .Values.test.headers -}}
{{- if and $.Values.test.existingSecret (eq (lower $name) "authorization") -}}
{{- $errors = append $errors "test: has headers.authorization and an existingSecret; leave one out" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.test.caConfigMap (not (hasPrefix "https://" .Values.test.url)) -}}
{{- $errors = append $errors "test.caConfigMap: is for a question over HTTPS: set test.url, such as https://NAME-IN-THE-CERTIFICATE/v1" -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "envoy-harmony.recordsErrors" -}}
{{- $errors := list -}}
{{- $records := .Values.records -}}
{{- $record := get (include "envoy-harmony.config" . | fromYaml) "record" | default dict -}}
{{- if not $records.enabled -}}
{{- if $records.existingClaim -}}
{{- $errors = append $errors "records.existingClaim: has no effect without a folder: set records.enabled" -}}
{{- end -}}
{{- range list "folder_bytes" "folder_age" -}}
{{- if hasKey $record . -}}
{{- $errors = append $errors (printf "config.record.%s: has no effect without a folder: set records.enabled" .) -}}
{{- end -}}
{{- end -}}
{{- else if $records.existingClaim -}}
{{- if include "envoy-harmony.severalReplicas" . -}}
{{- $errors = append $errors "records.existingClaim: is for one replica, because each counts only its own files: leave it out, and each pod has a folder of its own" -}}
{{- end -}}
{{- else -}}
{{- $limit := include "envoy-harmony.bytes" $records.sizeLimit | int64 -}}
{{- $files := include "envoy-harmony.bytes" $record.folder_bytes | int64 -}}
{{- $one := include "envoy-harmony.bytes" (default 8388608 $record.max_record_bytes) | int64 -}}
{{- $need := add (mul 2 $files) $one -}}
{{- if gt $need $limit -}}
{{- $errors = append $errors (printf "config.record.folder_bytes: %d does not fit in records.sizeLimit %s: files take up to twice their bytes on the disk, with a record that is being written (config.record.max_record_bytes) %d bytes: set a smaller number, or a larger records.sizeLimit" $files $records.sizeLimit $need) -}}
{{- end -}}
{{- end -}}
{{- $inspector := .Values.inspector -}}
{{- if and $inspector.enabled (not $inspector.existingSecret) -}}
{{- $errors = append $errors "inspector.existingSecret: name a Secret with a token: every pod of the cluster may reach the admin port, and the page shows records of all tenants" -}}
{{- end -}}
{{- if and $inspector.existingSecret (not $inspector.enabled) -}}
{{- $errors = append $errors "inspector.existingSecret: has no effect without the page: set inspector.enabled" -}}
{{- end -}}
{{- if and .Values.render.from (not (and .Values.render.enabled .Values.networkPolicy.enabled)) -}}
{{- $errors = append $errors "render.from: has no effect without the service and its policy: set render.enabled and networkPolicy.enabled" -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "envoy-harmony.tlsErrors" -}}
{{- $errors := list -}}
{{- $tls := .Values.tls -}}
{{- if not $tls.enabled -}}
{{- range list "existingSecret" "clientCA" "clientCAConfigMap" -}}
{{- if get $tls . -}}
{{- $errors = append $errors (printf "tls.%s: has no effect without TLS: set tls.enabled" .) -}}
{{- end -}}
{{- end -}}
{{- if $tls.certManager.enabled -}}
{{- $errors = append $errors "tls.certManager: has no effect without TLS: set tls.enabled" -}}
{{- end -}}
{{- else -}}
{{- if .Values.websocket.enabled -}}
{{- $errors = append $errors "websocket.enabled: the listener for WebSockets has no TLS, so that prompts would cross the cluster in plain text: set websocket.enabled: false, or tls.enabled: false, or use mode sidecar" -}}
{{- end -}}
{{- if eq .Values.mode "sidecar" -}}
{{- $errors = append $errors "tls: Envoy and a sidecar speak over a Unix socket: set tls.enabled: false" -}}
{{- end -}}
{{- if and $tls.existingSecret $tls.certManager.enabled -}}
{{- $errors = append $errors "tls: has an existingSecret and certManager; leave one out" -}}
{{- else if not (or $tls.existingSecret $tls.certManager.enabled) -}}
{{- $errors = append $errors "tls: a certificate is missing: set tls.existingSecret, or tls.certManager.enabled" -}}
{{- end -}}
{{- if and $tls.certManager.enabled (not $tls.certManager.issuerRef) -}}
{{- $errors = append $errors "tls.certManager.issuerRef: name the issuer, such as {kind: ClusterIssuer, name: ca}" -}}
{{- end -}}
{{- if and $tls.clientCA $tls.clientCAConfigMap -}}
{{- $errors = append $errors "tls: has a clientCA and a clientCAConfigMap; leave one out" -}}
{{- end -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "envoy-harmony.loopbackTLSErrors" -}}
{{- $errors := list -}}
{{- $tls := .Values.gateway.loopback.tls -}}
{{- $address := include "envoy-harmony.loopbackAddress" . -}}
{{- if not $tls.enabled -}}
{{- range list "existingSecret" "caConfigMap" "clientSecret" -}}
{{- if get $tls . -}}
{{- $errors = append $errors (printf "gateway.loopback.tls.%s: has no effect without TLS: set gateway.loopback.tls.enabled" .) -}}
{{- end -}}
{{- end -}}
{{- else if hasPrefix "unix://" $address -}}
{{- $errors = append $errors "gateway.loopback.tls: the loopback listener is a Unix socket of the pod: set gateway.loopback.tls.enabled: false" -}}
{{- else if not $address -}}
{{- $errors = append $errors "gateway.loopback.tls: there is no loopback listener: set gateway.loopback.enabled, and with gateway.provider none gateway.loopback.address, or gateway.loopback.tls.enabled: false" -}}
{{- else if eq .Values.gateway.provider "none" -}}
{{- if $tls.existingSecret -}}
{{- $errors = append $errors "gateway.loopback.tls.existingSecret: the listener at gateway.loopback.address is yours, and has its certificate: leave it out" -}}
{{- end -}}
{{- else -}}
{{- if not $tls.existingSecret -}}
{{- $errors = append $errors (printf "gateway.loopback.tls.existingSecret: name the Secret with the certificate of the loopback Gateway, which must be for the host of %s" $address) -}}
{{- end -}}
{{- if not $tls.caConfigMap -}}
{{- $errors = append $errors "gateway.loopback.tls.caConfigMap: name the ConfigMap with the CA of the loopback Gateway's certificate in ca.crt" -}}
{{- end -}}
{{- if $tls.clientSecret -}}
{{- $errors = append $errors "gateway.loopback.tls.clientSecret: the loopback Gateway asks for no certificate: leave it out, and set networkPolicy.enabled" -}}
{{- end -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "envoy-harmony.scaleErrors" -}}
{{- $errors := list -}}
{{- $scaling := .Values.autoscaling -}}
{{- if include "envoy-harmony.patched" . -}}
{{- if $scaling.enabled -}}
{{- $errors = append $errors "autoscaling: with sidecar.envoy.enabled: false the pods are not the chart's: scale Envoy's own Deployment" -}}
{{- end -}}
{{- else if $scaling.enabled -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
{{- $errors = append $errors (printf "autoscaling: minReplicas is %d and maxReplicas %d: the least must not be above the most" (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- end -}}
{{- if not (or $scaling.targetCPUUtilizationPercentage $scaling.targetStreamsInflight $scaling.metrics) -}}
{{- $errors = append $errors "autoscaling: nothing is measured: set targetCPUUtilizationPercentage, targetStreamsInflight or metrics" -}}
{{- end -}}
{{- if and $scaling.targetCPUUtilizationPercentage (not (dig "requests" "cpu" "" .Values.resources)) -}}
{{- $errors = append $errors "autoscaling.targetCPUUtilizationPercentage: is a share of resources.requests.cpu: set that too" -}}
{{- end -}}
{{- end -}}
{{- $budget := .Values.podDisruptionBudget -}}
{{- $replicas := ternary $scaling.minReplicas .Values.replicaCount $scaling.enabled -}}
{{- if and $budget.enabled (or (kindIs "float64" $budget.minAvailable) (kindIs "int64" $budget.minAvailable)) (ge (int $budget.minAvailable) (int $replicas)) -}}
{{- $errors = append $errors (printf "podDisruptionBudget.minAvailable: is %d of %d replicas, so no node could be drained: set a smaller number, or maxUnavailable" (int $budget.minAvailable) (int $replicas)) -}}
{{- end -}}
{{- if and $budget.enabled (or (eq (toString $budget.minAvailable) "100%") (and (kindIs "invalid" $budget.minAvailable) (has (toString $budget.maxUnavailable) (list "0" "0%")))) -}}
{{- $errors = append $errors "podDisruptionBudget: allows no eviction, so no node could be drained: set maxUnavailable to 1 or more" -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}

{{- define "envoy-harmony.restErrors" -}}
{{- $errors := list -}}
{{- range $value, $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels -}}
{{- range $key, $_ := $labels -}}
{{- if hasPrefix "app.kubernetes.io/" $key -}}
{{- $errors = append $errors (printf "%s: %s is the chart's own label, by which Services and policies select pods: leave it out" $value $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $ports := list (int .Values.adminPort) -}}
{{- if eq .Values.mode "deployment" -}}
{{- $ports = append $ports (int .Values.service.port) -}}
{{- if .Values.websocket.enabled -}}{{- $ports = append $ports (int .Values.websocket.port) -}}{{- end -}}
{{- else if .Values.sidecar.envoy.enabled -}}
{{- $ports = append $ports (int .Values.sidecar.envoy.port) | concat (list (include "envoy-harmony.envoyAdmin" . | splitList ":" | last | int)) -}}
{{- end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}
{{- $errors = append $errors (printf "adminPort: two listeners of a pod would have the same port (%s): change adminPort, service.port, websocket.port or sidecar.envoy.port" (join ", " $ports)) -}}
{{- end -}}
{{- $grace := .Values.terminationGracePeriodSeconds -}}
{{- $drain := include "envoy-harmony.drainSeconds" . | int -}}
{{- if and (not (kindIs "invalid" $grace)) (lt (int $grace) $drain) -}}
{{- $errors = append $errors (printf "terminationGracePeriodSeconds: %d is too short: drain_delay, drain_timeout and 40 s for background responses take %d s: leave it out, or set config.drain_timeout to less" (int $grace) $drain) -}}
{{- end -}}
{{- if and .Values.sidecar.envoy.tls.existingSecret (or (ne .Values.mode "sidecar") (not .Values.sidecar.envoy.enabled)) -}}
{{- $errors = append $errors "sidecar.envoy.tls.existingSecret: is for an Envoy that the chart makes, in mode sidecar, and has no effect on another: leave it out; a Gateway that the chart makes has gateway.tls.existingSecret" -}}
{{- end -}}
{{- $gateway := .Values.gateway -}}
{{- if ne $gateway.provider "none" -}}
{{- if eq .Values.mode "sidecar" -}}
{{- $errors = append $errors (printf "gateway.provider: %s is for mode deployment; mode sidecar has an Envoy of its own: set gateway.provider: none" $gateway.provider) -}}
{{- end -}}
{{- if not $gateway.name -}}
{{- $errors = append $errors (printf "gateway.name: the provider %s needs the name of the clients' Gateway" $gateway.provider) -}}
{{- end -}}
{{- end -}}
{{- $monitoring := .Values.monitoring -}}
{{- if and $monitoring.serviceMonitor.enabled $monitoring.podMonitor.enabled -}}
{{- $errors = append $errors "monitoring: serviceMonitor and podMonitor would read every metric twice; enable one" -}}
{{- end -}}
{{- if and $monitoring.serviceMonitor.enabled (include "envoy-harmony.patched" .) -}}
{{- $errors = append $errors "monitoring.serviceMonitor: with sidecar.envoy.enabled: false there is no Service: enable monitoring.podMonitor" -}}
{{- end -}}
{{- $policy := .Values.networkPolicy -}}
{{- if $policy.enabled -}}
{{- if include "envoy-harmony.patched" . -}}
{{- $errors = append $errors "networkPolicy: with sidecar.envoy.enabled: false the pods are not the chart's: protect Envoy's pods by a policy of your own, and set networkPolicy.enabled: false" -}}
{{- else if and (eq .Values.mode "deployment") (not $policy.gatewayFrom) (not (include "envoy-harmony.gateway.clientPeers" . | trim)) -}}
{{- $errors = append $errors "networkPolicy.gatewayFrom: name the pods that may connect to the filter, such as [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: envoy-gateway-system}}}]" -}}
{{- end -}}
{{- if and (eq .Values.mode "deployment") $policy.clientsFrom -}}
{{- $errors = append $errors "networkPolicy.clientsFrom: is for mode sidecar; here clients connect to the gateway: leave it out" -}}
{{- end -}}
{{- if and (eq .Values.mode "sidecar") (or $policy.gatewayFrom $policy.loopbackPods) -}}
{{- $errors = append $errors "networkPolicy: gatewayFrom and loopbackPods are for mode deployment; a sidecar has sockets: leave them out, and set clientsFrom" -}}
{{- end -}}
{{- if and $policy.egress.enabled (eq .Values.mode "deployment") .Values.gateway.loopback.address (not $policy.loopbackPods) (not $policy.egress.to) -}}
{{- $errors = append $errors "networkPolicy.loopbackPods: the filter connects to the loopback listener at gateway.loopback.address: name its pods, {namespace, podSelector}, or add it to egress.to" -}}
{{- end -}}
{{- $tools := default dict .Values.config.tools -}}
{{- if and $policy.egress.enabled (or $tools.servers $tools.allowed_hosts) (not $policy.egress.to) -}}
{{- $errors = append $errors "networkPolicy.egress.to: the filter connects to MCP servers: name them, such as [{ports: [{port: 443}]}]" -}}
{{- end -}}
{{- if and $policy.egress.enabled (eq .Values.mode "sidecar") (not $policy.egress.to) -}}
{{- $errors = append $errors "networkPolicy.egress.to: in mode sidecar Envoy connects to the engines: name them" -}}
{{- end -}}
{{- if and $policy.egress.enabled (eq (include "envoy-harmony.storeKind" .) "shared") (not $policy.egress.to) -}}
{{- $errors = append $errors "networkPolicy.egress.to: the filter connects to its store: name it, such as [{ports: [{port: 6379}], to: [{podSelector: {matchLabels: {app: redis}}}]}]" -}}
{{- end -}}
{{- end -}}
{{- toJson $errors -}}
{{- end -}}
