{{/* The filter's configuration file, and what follows from it. */}}

{{/* The folder of the sockets that Envoy and filter share in mode sidecar. */}}
{{- define "envoy-harmony.socketDir" -}}/run/envoy-harmony{{- end -}}

{{/* The address of the loopback listener, "" if there is none. */}}
{{- define "envoy-harmony.loopbackAddress" -}}
{{- $loopback := .Values.gateway.loopback -}}
{{- if not $loopback.enabled -}}
{{- else if eq .Values.mode "sidecar" -}}
unix://{{ include "envoy-harmony.socketDir" . }}/loopback.sock
{{- else if $loopback.address -}}
{{- $loopback.address -}}
{{- else if ne .Values.gateway.provider "none" -}}
{{- include "envoy-harmony.gateway.loopbackHost" . }}:{{ $loopback.port }}
{{- end -}}
{{- end -}}

{{/* What is before that address in the filter's configuration. */}}
{{- define "envoy-harmony.loopbackScheme" -}}
{{- if .Values.gateway.loopback.tls.enabled -}}https://{{- end -}}
{{- end -}}

{{/* The host name of a Service {name, namespace} of the engines: (list $ service). */}}
{{- define "envoy-harmony.serviceHost" -}}
{{- $root := first . -}}
{{- $service := last . -}}
{{- $service.name }}.{{ default $root.Release.Namespace $service.namespace }}.svc.{{ $root.Values.clusterDomain -}}
{{- end -}}

{{/* The URL of a Service {name, namespace, port, scheme} of the engines: (list $ service). */}}
{{- define "envoy-harmony.serviceURL" -}}
{{- $service := last . -}}
{{- default "http" $service.scheme }}://{{ include "envoy-harmony.serviceHost" . }}:{{ $service.port -}}
{{- end -}}

{{/* The engines: those of the values, or the simulated one. A list in JSON. */}}
{{- define "envoy-harmony.engineList" -}}
{{- if .Values.simulate -}}
{{- $service := dict "name" (include "envoy-harmony.simulatorName" .) "port" 8000 -}}
{{- list (dict "name" "simulator" "kind" "vllm" "service" $service "healthPath" "/health") | toJson -}}
{{- else -}}
{{- toJson .Values.engines -}}
{{- end -}}
{{- end -}}

{{/* The engines as the filter's configuration has them. */}}
{{- define "envoy-harmony.engines" -}}
{{- $root := . -}}
{{- range include "envoy-harmony.engineList" . | fromJsonArray }}
- name: {{ default .kind .name | quote }}
  kind: {{ .kind }}
  {{- if .urls }}
  urls: {{ toJson .urls }}
  {{- else if .service }}
  urls: [{{ include "envoy-harmony.serviceURL" (list $root .service) | quote }}]
  {{- end }}
  {{- with .healthPath }}
  health_path: {{ quote . }}
  {{- end }}
  {{- with .endpointPicker }}
  endpoint_picker: {{ quote . }}
  {{- end }}
  {{- with .kvHints }}
  kv_hints: {{ . }}
  {{- end }}
  {{- with .prefill }}
  prefill:
  {{- range . }}
  - url: {{ include "envoy-harmony.serviceURL" (list $root .service) | quote }}
    {{- with .bootstrapPort }}
    bootstrap_port: {{ . }}
    {{- end }}
  {{- end }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The configuration file: what the chart derives, and config over it. */}}
{{- define "envoy-harmony.config" -}}
{{- $derived := dict
    "engines" (include "envoy-harmony.engines" . | fromYamlArray)
    "admin" (printf ":%d" (int .Values.adminPort))
    "drain_delay" "10s"
    "drain_timeout" "2m"
-}}
{{- if include "envoy-harmony.patched" . -}}
{{- /* Envoy has ended when the filter ends. */ -}}
{{- $_ := set $derived "drain_delay" "0s" -}}
{{- end -}}
{{- if eq .Values.mode "sidecar" -}}
{{- $_ := set $derived "listen" (printf "unix://%s/filter.sock" (include "envoy-harmony.socketDir" .)) -}}
{{- else -}}
{{- $_ := set $derived "listen" (printf ":%d" (int .Values.service.port)) -}}
{{- end -}}
{{- if .Values.websocket.enabled -}}
{{- $socket := printf "unix://%s/websocket.sock" (include "envoy-harmony.socketDir" .) -}}
{{- $_ := set $derived "websocket" (dict "listen" (ternary $socket (printf ":%d" (int .Values.websocket.port)) (eq .Values.mode "sidecar"))) -}}
{{- end -}}
{{- with include "envoy-harmony.loopbackAddress" . -}}
{{- $_ := set $derived "loopback" (print (include "envoy-harmony.loopbackScheme" $) .) -}}
{{- end -}}
{{- with include "envoy-harmony.loopbackTLSConfig" . | fromYaml -}}
{{- $_ := set $derived "loopback_tls" . -}}
{{- end -}}
{{- with include "envoy-harmony.tlsConfig" . | fromYaml -}}
{{- $_ := set $derived "tls" . -}}
{{- end -}}
{{- with include "envoy-harmony.recordConfig" . | fromYaml -}}
{{- $_ := set $derived "record" . -}}
{{- end -}}
{{- if .Values.inspector.enabled -}}
{{- $_ := set $derived "inspector" (dict "enabled" true) -}}
{{- end -}}
{{- toYaml (mergeOverwrite $derived (deepCopy .Values.config)) -}}
{{- end -}}

{{/* The folder of records. */}}
{{- define "envoy-harmony.recordFolder" -}}/var/lib/envoy-harmony-records{{- end -}}

{{/* The keys record.* of the configuration. Pods whose emptyDir is full are evicted: files may fill
     less than half of it, because each takes whole blocks of the disk. */}}
{{- define "envoy-harmony.recordConfig" -}}
{{- if .Values.records.enabled -}}
folder: {{ include "envoy-harmony.recordFolder" . }}
{{- if not .Values.records.existingClaim }}
folder_bytes: {{ div (mul (include "envoy-harmony.bytes" .Values.records.sizeLimit | int64) 2) 5 }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The keys tls.* of the configuration. */}}
{{- define "envoy-harmony.tlsConfig" -}}
{{- if .Values.tls.enabled -}}
cert_file: /etc/envoy-harmony-tls/tls.crt
key_file: /etc/envoy-harmony-tls/tls.key
{{- if or .Values.tls.clientCA .Values.tls.clientCAConfigMap }}
client_ca_file: /etc/envoy-harmony-ca/ca.crt
{{- end }}
{{- end -}}
{{- end -}}

{{/* The keys loopback_tls.* of the configuration. */}}
{{- define "envoy-harmony.loopbackTLSConfig" -}}
{{- with .Values.gateway.loopback.tls -}}
{{- if .caConfigMap }}
ca_file: /etc/envoy-harmony-loopback-ca/ca.crt
{{- end }}
{{- if .clientSecret }}
cert_file: /etc/envoy-harmony-loopback-tls/tls.crt
key_file: /etc/envoy-harmony-loopback-tls/tls.key
{{- end }}
{{- end -}}
{{- end -}}

{{/* How long a pod may take to end, in seconds, as it follows from the configuration. A drain takes
     drain_delay and drain_timeout, and up to half a minute more to store background responses. */}}
{{- define "envoy-harmony.drainSeconds" -}}
{{- $config := include "envoy-harmony.config" . | fromYaml -}}
{{- add (include "envoy-harmony.seconds" $config.drain_delay) (include "envoy-harmony.seconds" $config.drain_timeout) 40 -}}
{{- end -}}

{{/* The kind of the store: memory, sqlite or shared. */}}
{{- define "envoy-harmony.storeKind" -}}
{{- if .Values.store.existingSecret -}}shared
{{- else if hasPrefix "memory:" .Values.store.url -}}memory
{{- else if hasPrefix "sqlite:" .Values.store.url -}}sqlite
{{- else -}}shared
{{- end -}}
{{- end -}}

{{/* A checksum of everything that needs a restart if it changes: the keys in files/restart-keys.json,
     secrets that the chart makes, and in mode sidecar what Envoy's bootstrap is made of. */}}
{{- define "envoy-harmony.restartChecksum" -}}
{{- $config := include "envoy-harmony.config" . | fromYaml -}}
{{- $fixed := .Files.Get "files/restart-keys.json" | fromJson -}}
{{- $keys := $fixed.restart -}}
{{- $parts := list (include "envoy-harmony.secretData" .) -}}
{{- if and (eq .Values.mode "sidecar") .Values.sidecar.envoy.enabled -}}
{{- $keys = concat $keys $fixed.envoy -}}
{{- $parts = append $parts .Values.sidecar.envoy -}}
{{- end -}}
{{- range $keys -}}
{{- $node := $config -}}
{{- range splitList "." . -}}
{{- $node = ternary (get (default dict $node) .) "" (kindIs "map" (default dict $node)) -}}
{{- end -}}
{{- $parts = append $parts $node -}}
{{- end -}}
{{- toJson $parts | sha256sum -}}
{{- end -}}
