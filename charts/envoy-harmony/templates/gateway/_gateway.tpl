{{/* What the other templates ask of a provider, and the objects that are the same for all of them. */}}

{{- define "envoy-harmony.gateway.namespace" -}}
{{- default .Release.Namespace .Values.gateway.namespace -}}
{{- end -}}

{{/* The loopback Gateway. */}}
{{- define "envoy-harmony.gateway.loopbackName" -}}
{{- include "envoy-harmony.fullname" . }}-loopback
{{- end -}}

{{/* The GatewayClasses that the providers' installations make, in JSON. */}}
{{- define "envoy-harmony.gateway.classes" -}}
{{- dict "envoyGateway" "eg" "istio" "istio" "kgateway" "kgateway" "agentgateway" "agentgateway" | toJson -}}
{{- end -}}

{{/* The GatewayClass: that of the values, else the provider's. */}}
{{- define "envoy-harmony.gateway.className" -}}
{{- default (get (include "envoy-harmony.gateway.classes" . | fromJson) .Values.gateway.provider) .Values.gateway.className -}}
{{- end -}}

{{/* The name of the Service that a provider makes for a Gateway: (list $ gateway). Envoy Gateway has
     those of all namespaces in one, so that the name has the Gateway's namespace. */}}
{{- define "envoy-harmony.gateway.serviceName" -}}
{{- $root := first . -}}
{{- if eq $root.Values.gateway.provider "envoyGateway" -}}
{{- $name := printf "%s-%s" $root.Release.Namespace (last .) -}}
{{- if gt (len $name) 63 -}}
{{- $name = printf "%s-%s" (trunc 54 $name | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- else if eq $root.Values.gateway.provider "istio" -}}
{{- last . }}-{{ include "envoy-harmony.gateway.className" $root -}}
{{- else -}}
{{- last . -}}
{{- end -}}
{{- end -}}

{{/* The name of an object of the release in a namespace, which may have other releases of the same
     name: (list $ name namespace). */}}
{{- define "envoy-harmony.nameIn" -}}
{{- $root := first . -}}
{{- index . 1 -}}
{{- if ne (last .) $root.Release.Namespace }}-{{ $root.Release.Namespace }}{{ end -}}
{{- end -}}

{{/* The host name of the loopback Gateway's Service. */}}
{{- define "envoy-harmony.gateway.loopbackHost" -}}
{{- $namespace := ternary "envoy-gateway-system" .Release.Namespace (eq .Values.gateway.provider "envoyGateway") -}}
{{ include "envoy-harmony.gateway.serviceName" (list . (include "envoy-harmony.gateway.loopbackName" .)) }}.{{ $namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* The base URL at which helm test reaches the clients' Gateway in the cluster, "" if unknown: the
     Service of Envoy Gateway has a name with a hash, unless the chart makes the Gateway. */}}
{{- define "envoy-harmony.gateway.url" -}}
{{- if and (eq .Values.gateway.provider "envoyGateway") .Values.gateway.create -}}
http://{{ include "envoy-harmony.gateway.serviceName" (list . .Values.gateway.name) }}.envoy-gateway-system.svc.{{ .Values.clusterDomain }}:{{ include "envoy-harmony.clientsPort" . }}/v1
{{- else if not (has .Values.gateway.provider (list "none" "envoyGateway")) -}}
http://{{ include "envoy-harmony.gateway.serviceName" (list . .Values.gateway.name) }}.{{ include "envoy-harmony.gateway.namespace" . }}.svc.{{ .Values.clusterDomain }}:{{ include "envoy-harmony.clientsPort" . }}/v1
{{- end -}}
{{- end -}}

{{/* The pods of a Gateway, {namespace, podSelector} in YAML: (list $ gateway namespace). */}}
{{- define "envoy-harmony.gateway.pods" -}}
{{- $root := first . -}}
{{- if eq $root.Values.gateway.provider "envoyGateway" -}}
namespace: envoy-gateway-system
podSelector:
  matchLabels:
    gateway.envoyproxy.io/owning-gateway-name: {{ index . 1 }}
    gateway.envoyproxy.io/owning-gateway-namespace: {{ index . 2 }}
{{- else if ne $root.Values.gateway.provider "none" -}}
namespace: {{ index . 2 }}
podSelector:
  matchLabels:
    gateway.networking.k8s.io/gateway-name: {{ index . 1 }}
{{- end -}}
{{- end -}}

{{/* The pods of the clients' Gateway, as a list of NetworkPolicyPeers in YAML, "" if unknown. */}}
{{- define "envoy-harmony.gateway.clientPeers" -}}
{{- with include "envoy-harmony.gateway.pods" (list . .Values.gateway.name (include "envoy-harmony.gateway.namespace" .)) | fromYaml -}}
- namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ .namespace }}
  podSelector: {{ toJson .podSelector }}
{{- end -}}
{{- end -}}

{{/* The pods of the loopback Gateway, {namespace, podSelector} in YAML, "" if unknown. */}}
{{- define "envoy-harmony.gateway.loopbackPods" -}}
{{- include "envoy-harmony.gateway.pods" (list . (include "envoy-harmony.gateway.loopbackName" .) .Release.Namespace) -}}
{{- end -}}

{{/* Wrong combinations of gateway.* and the rest: a list of errors in JSON. */}}
{{- define "envoy-harmony.gateway.errors" -}}
{{- $errors := list -}}
{{- $g := .Values.gateway -}}
{{- if eq $g.provider "none" -}}
{{- range list "name" "create" "className" -}}
{{- if get $g . -}}
{{- $errors = append $errors (printf "gateway.%s: has no effect without a provider: set gateway.provider" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* Who sets these wants to protect clients, or to be reached: without an effect they would mislead. */ -}}
{{- if not $g.create -}}
{{- if $g.tls.existingSecret -}}
{{- $errors = append $errors "gateway.tls.existingSecret: is for a Gateway that the chart makes, and has no effect on another: set gateway.create, or leave it out and give your Gateway an HTTPS listener" -}}
{{- end -}}
{{- if ne $g.serviceType "ClusterIP" -}}
{{- $errors = append $errors (printf "gateway.serviceType: %s is for a Gateway that the chart makes: set gateway.create, or leave it out" $g.serviceType) -}}
{{- end -}}
{{- end -}}
{{- if ne $g.provider "none" -}}
{{- range $provider, $class := include "envoy-harmony.gateway.classes" . | fromJson -}}
{{- if and (eq $class $g.className) (ne $provider $g.provider) -}}
{{- $errors = append $errors (printf "gateway.className: %s is the GatewayClass of %s, and gateway.provider is %s: leave it out, or name a class of %s" $class $provider $g.provider $g.provider) -}}
{{- end -}}
{{- end -}}
{{- if and $g.create $g.namespace (ne $g.namespace .Release.Namespace) -}}
{{- $errors = append $errors (printf "gateway.namespace: is %s, and a Gateway that the chart makes is in the namespace of the release: leave it out" $g.namespace) -}}
{{- end -}}
{{- if eq $g.provider "agentgateway" -}}
{{- if $g.loopback.enabled -}}
{{- $errors = append $errors "gateway.loopback.enabled: agentgateway does not take replies that the filter makes itself, which those of the loopback are: set it to false, or use mode sidecar behind agentgateway; see docs/gateways/agentgateway.md" -}}
{{- end -}}
{{- else if not $g.loopback.enabled -}}
{{- $errors = append $errors "gateway.loopback.enabled: behind a gateway the filter makes its model calls through the loopback Gateway: leave it true" -}}
{{- end -}}
{{- if eq (include "envoy-harmony.gateway.upstream" .) "" -}}
{{- $errors = append $errors "gateway.upstream.name: no engine is an HTTP Service that could take requests for other models: name a Service" -}}
{{- end -}}
{{- $service := include "envoy-harmony.gateway.serviceName" (list . (include "envoy-harmony.gateway.loopbackName" .)) -}}
{{- if and $g.loopback.enabled (gt (len $service) 63) -}}
{{- $errors = append $errors (printf "fullnameOverride: the Service of the loopback Gateway would be %s, which has more than 63 characters: set a shorter name" $service) -}}
{{- end -}}
{{- if and $g.filterCA (not .Values.tls.enabled) -}}
{{- $errors = append $errors "gateway.filterCA: has no effect without TLS: set tls.enabled" -}}
{{- end -}}
{{- if and .Values.tls.enabled (not $g.filterCA) -}}
{{- $errors = append $errors "gateway.filterCA: with tls.enabled the gateway checks the filter's certificate: name the ConfigMap with its CA in ca.crt" -}}
{{- end -}}
{{- range include "envoy-harmony.engineList" . | fromJsonArray -}}
{{- if and (hasSuffix "-grpc" .kind) (eq $g.provider "kgateway") -}}
{{- $errors = append $errors (printf "engines: %s is a gRPC engine, which has not been tested behind kgateway: use an HTTP kind" (default .kind .name)) -}}
{{- end -}}
{{- if and .inferencePool (has $g.provider (list "envoyGateway" "kgateway")) -}}
{{- $errors = append $errors (printf "engines: %s has an inferencePool, which %s does not know: see docs/gateways/inference-pool.md" (default .kind .name) $g.provider) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $errors | toJson -}}
{{- end -}}

{{/* The Service for other models, {name, namespace, port} in YAML: by default that of the first HTTP
     engine, "" if there is none. */}}
{{- define "envoy-harmony.gateway.upstream" -}}
{{- if .Values.gateway.upstream.name -}}
{{- toYaml .Values.gateway.upstream -}}
{{- else -}}
{{- $found := dict -}}
{{- range include "envoy-harmony.engineList" . | fromJsonArray -}}
{{- if and .service (not (hasSuffix "-grpc" .kind)) (not $found) -}}
{{- $found = .service -}}
{{- end -}}
{{- end -}}
{{- with $found -}}{{ toYaml . }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* How long a stream may be idle: longer than limits.total_timeout, whose errors are more precise. */}}
{{- define "envoy-harmony.gateway.streamIdleTimeout" -}}
{{- $limits := default dict .Values.config.limits -}}
{{- printf "%ds" (add 60 (include "envoy-harmony.seconds" (default "1h" $limits.total_timeout))) -}}
{{- end -}}

{{/* The request headers that only the filter may set, as a JSON list. */}}
{{- define "envoy-harmony.gateway.internalHeaders" -}}
{{- $routing := default dict .Values.config.routing -}}
{{- $names := list "x-harmony-engine" "x-harmony-prefill" "x-harmony-upstream" "x-harmony-prompt-tokens" "x-harmony-filled" "x-gateway-destination-endpoint" -}}
{{- $names = append $names (default "x-harmony-prefix" $routing.prefix_header) -}}
{{- $names = append $names (default "x-harmony-session" $routing.session_header) -}}
{{- with $routing.selection_header -}}{{- $names = append $names . -}}{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* The header by which a replica is chosen. */}}
{{- define "envoy-harmony.gateway.prefixHeader" -}}
{{- $routing := default dict .Values.config.routing -}}
{{- default "x-harmony-prefix" $routing.prefix_header -}}
{{- end -}}

{{/* A backendRef of a Service {name, namespace, port}: (list $ service). */}}
{{- define "envoy-harmony.gateway.backendRef" -}}
{{- $root := first . -}}
{{- $service := last . -}}
{name: {{ $service.name }}{{ if and $service.namespace (ne $service.namespace $root.Release.Namespace) }}, namespace: {{ $service.namespace }}{{ end }}, port: {{ $service.port }}}
{{- end -}}

{{/* The backendRef of an engine: (list $ engine). */}}
{{- define "envoy-harmony.gateway.engineRef" -}}
{{- $root := first . -}}
{{- $engine := last . -}}
{{- if $engine.inferencePool -}}
{group: inference.networking.k8s.io, kind: InferencePool, name: {{ $engine.inferencePool.name }}}
{{- else -}}
{{- include "envoy-harmony.gateway.backendRef" (list $root $engine.service) -}}
{{- end -}}
{{- end -}}

{{- define "envoy-harmony.gateway.metadata" -}}
{{- $root := first . -}}
name: {{ last . }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "envoy-harmony.labels" $root | nindent 2 }}
{{- end -}}

{{/* The same for an object that has to be in the namespace of the clients' Gateway: (list $ name). */}}
{{- define "envoy-harmony.gateway.clientsMetadata" -}}
{{- $root := first . -}}
{{- $namespace := include "envoy-harmony.gateway.namespace" $root -}}
name: {{ include "envoy-harmony.nameIn" (list $root (last .) $namespace) }}
namespace: {{ $namespace }}
labels:
  {{- include "envoy-harmony.labels" $root | nindent 2 }}
{{- end -}}

{{/* The clients' Gateway, if the chart makes it, and the clients' route. */}}
{{- define "envoy-harmony.gateway.clients" -}}
{{- $g := .Values.gateway -}}
{{- if $g.create }}
# The gateway that clients use.
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  {{- include "envoy-harmony.gateway.metadata" (list . .Values.gateway.name) | nindent 2 }}
  {{- if and (eq $g.provider "istio") (ne $g.serviceType "LoadBalancer") }}
  annotations:
    # The default is a load balancer.
    networking.istio.io/service-type: {{ $g.serviceType }}
  {{- end }}
spec:
  gatewayClassName: {{ include "envoy-harmony.gateway.className" . }}
  {{- with get (dict "envoyGateway" "gateway.envoyproxy.io, kind: EnvoyProxy" "kgateway" "gateway.kgateway.dev, kind: GatewayParameters" "agentgateway" "agentgateway.dev, kind: AgentgatewayParameters") $g.provider }}
  infrastructure:
    parametersRef: {group: {{ . }}, name: {{ include "envoy-harmony.fullname" $ }}}
  {{- end }}
  listeners:
  {{- with $g.tls.existingSecret }}
  - name: https
    protocol: HTTPS
    tls:
      mode: Terminate
      certificateRefs:
      - {group: "", kind: Secret, name: {{ . }}}
  {{- else }}
  - name: http
    protocol: HTTP
  {{- end }}
    port: {{ include "envoy-harmony.clientsPort" . }}
    allowedRoutes: {namespaces: {from: Same}}
---
{{- end }}
# Requests for the APIs of the filter.
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  {{- include "envoy-harmony.gateway.metadata" (list . (include "envoy-harmony.fullname" .)) | nindent 2 }}
spec:
  parentRefs:
  - {group: gateway.networking.k8s.io, kind: Gateway, name: {{ .Values.gateway.name }}, namespace: {{ include "envoy-harmony.gateway.namespace" . }}}
  {{- with $g.hostnames }}
  hostnames: {{ toJson . }}
  {{- end }}
  rules:
  - matches:
    - path: {type: Exact, value: /v1/chat/completions}
    - path: {type: Exact, value: /v1/chat/completions/render}
    - path: {type: Exact, value: /v1/chat/completions/derender}
    - path: {type: Exact, value: /tokenize}
    - path: {type: Exact, value: /detokenize}
    - path: {type: PathPrefix, value: /v1/responses}
    - path: {type: PathPrefix, value: /v1/messages}
    - path: {type: PathPrefix, value: /v1/conversations}
    - path: {type: PathPrefix, value: /v1/models}
    # The gateway applies this behind the filter, which reads these headers.
    filters:
    - type: RequestHeaderModifier
      requestHeaderModifier: {remove: [x-envoy-harmony, x-envoy-harmony-codex]}
    # Takes the requests that pass through the filter: other models.
    backendRefs:
    - {{ include "envoy-harmony.gateway.backendRef" (list . (include "envoy-harmony.gateway.upstream" . | fromYaml)) }}
    # No limit: the filter has deadlines for the first token, the next and the last.
    timeouts: {request: 0s}
{{- include "envoy-harmony.gateway.websocketRoute" . }}
{{- $routing := default dict .Values.config.routing -}}
{{- with $routing.open_paths }}
---
# Other paths of that Service, which bypass the filter: routing.open_paths.
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  {{- include "envoy-harmony.gateway.metadata" (list $ (printf "%s-open" (include "envoy-harmony.fullname" $))) | nindent 2 }}
spec:
  parentRefs:
  - {group: gateway.networking.k8s.io, kind: Gateway, name: {{ $.Values.gateway.name }}, namespace: {{ include "envoy-harmony.gateway.namespace" $ }}}
  {{- with $g.hostnames }}
  hostnames: {{ toJson . }}
  {{- end }}
  rules:
  - matches:
    {{- range . }}
    - path: {type: {{ ternary "PathPrefix" "Exact" (hasSuffix "/*" .) }}, value: {{ default "/" (trimSuffix "/*" .) }}}
    {{- end }}
    # They select engine and replica.
    filters:
    - type: RequestHeaderModifier
      requestHeaderModifier: {remove: {{ include "envoy-harmony.gateway.internalHeaders" $ }}}
    backendRefs:
    - {{ include "envoy-harmony.gateway.backendRef" (list $ (include "envoy-harmony.gateway.upstream" $ | fromYaml)) }}
    timeouts: {request: 0s}
{{- end }}
{{- end -}}

{{/* The route of WebSockets, with the separator before it. */}}
{{- define "envoy-harmony.gateway.websocketRoute" -}}
{{- if .Values.websocket.enabled }}
---
# WebSockets of the Responses API. The filter would see frames, and no events: it has a
# listener of its own for them. Policies that authenticate clients have to be on this route too.
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  {{- include "envoy-harmony.gateway.metadata" (list . (include "envoy-harmony.gateway.websocketName" .)) | nindent 2 }}
spec:
  parentRefs:
  - {group: gateway.networking.k8s.io, kind: Gateway, name: {{ .Values.gateway.name }}, namespace: {{ include "envoy-harmony.gateway.namespace" . }}}
  {{- with .Values.gateway.hostnames }}
  hostnames: {{ toJson . }}
  {{- end }}
  rules:
  - matches:
    - path: {type: Exact, value: /v1/responses}
      method: GET
      # Its case does not matter.
      headers: [{type: RegularExpression, name: upgrade, value: "(?i)websocket"}]
    backendRefs:
    - {name: {{ include "envoy-harmony.fullname" . }}, port: {{ .Values.websocket.port }}}
    # No limit: the filter has an age, and a time without responses.
    timeouts: {request: 0s}
{{- end }}
{{- end -}}

{{- define "envoy-harmony.gateway.websocketName" -}}
{{- include "envoy-harmony.fullname" . }}-websocket
{{- end -}}

{{/* The loopback Gateway with a route for each engine: (list $ infrastructure annotations). The last
     two are YAML, "" if the provider needs none. */}}
{{- define "envoy-harmony.gateway.loopback" -}}
{{- $root := first . -}}
{{- $name := include "envoy-harmony.gateway.loopbackName" $root -}}
# The loopback: a gateway for the filter's model calls. It can be reached only in the
# cluster, selects engines by header, and has no filter.
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  {{- include "envoy-harmony.gateway.metadata" (list $root $name) | nindent 2 }}
  {{- with index . 2 }}
  annotations:
    {{- . | nindent 4 }}
  {{- end }}
spec:
  gatewayClassName: {{ include "envoy-harmony.gateway.className" $root }}
  {{- with index . 1 }}
  infrastructure:
    {{- . | nindent 4 }}
  {{- end }}
  listeners:
  {{- if $root.Values.gateway.loopback.tls.enabled }}
  - name: https
    protocol: HTTPS
    tls:
      mode: Terminate
      certificateRefs:
      - {group: "", kind: Secret, name: {{ $root.Values.gateway.loopback.tls.existingSecret }}}
  {{- else }}
  - name: http
    protocol: HTTP
  {{- end }}
    port: {{ $root.Values.gateway.loopback.port }}
    allowedRoutes: {namespaces: {from: Same}}
{{- range include "envoy-harmony.engineList" $root | fromJsonArray }}
---
{{ include "envoy-harmony.gateway.engineRoute" (list $root $name $root.Release.Namespace .) }}
{{- if .prefill }}
{{- include "envoy-harmony.gateway.prefill" (list $root $name .) }}
{{- end }}
{{- end }}
---
# The list of models of the service for other models.
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  {{- include "envoy-harmony.gateway.metadata" (list $root (printf "%s-models" (include "envoy-harmony.fullname" $root))) | nindent 2 }}
spec:
  parentRefs:
  - {group: gateway.networking.k8s.io, kind: Gateway, name: {{ $name }}}
  rules:
  - matches:
    - path: {type: Exact, value: /v1/models}
    backendRefs:
    - {{ include "envoy-harmony.gateway.backendRef" (list $root (include "envoy-harmony.gateway.upstream" $root | fromYaml)) }}
    timeouts: {request: 0s}
{{- include "envoy-harmony.gateway.grants" $root }}
{{- end -}}

{{/* The route to an engine: (list $ gateway namespace engine). */}}
{{- define "envoy-harmony.gateway.engineRoute" -}}
{{- $root := first . -}}
{{- $provider := $root.Values.gateway.provider -}}
{{- $engine := default (last .).kind (last .).name -}}
# Model calls for the engine {{ $engine }}.
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  {{- include "envoy-harmony.gateway.metadata" (list $root (printf "%s-engine-%s" (include "envoy-harmony.fullname" $root) $engine)) | nindent 2 }}
spec:
  parentRefs:
  - {group: gateway.networking.k8s.io, kind: Gateway, name: {{ index . 1 }}, namespace: {{ index . 2 }}}
  rules:
  - matches:
    - path: {type: PathPrefix, value: /}
      headers: [{name: x-harmony-engine, value: {{ $engine }}}]
    {{- if $root.Values.gateway.loopback.enabled }}
    # A route with an exact path takes precedence: the engine's own list of models
    # must not come from the last route.
    - path: {type: Exact, value: /v1/models}
      headers: [{name: x-harmony-engine, value: {{ $engine }}}]
    {{- end }}
    {{- if eq $provider "envoyGateway" }}
    filters:
    # Not x-harmony-upstream: Envoy would remove it before it has read it.
    - type: RequestHeaderModifier
      requestHeaderModifier: {remove: [x-harmony-engine]}
    {{- else }}
    filters:
    - type: RequestHeaderModifier
      requestHeaderModifier: {remove: [x-harmony-engine, x-harmony-upstream]}
    {{- end }}
    {{- if ne $provider "agentgateway" }}
    # Tells the filter which replica answered, so that a retry can exclude it.
    - type: ResponseHeaderModifier
      responseHeaderModifier:
        set: [{name: x-harmony-upstream, value: "%UPSTREAM_HOST%"}]
    {{- end }}
    backendRefs:
    - {{ include "envoy-harmony.gateway.engineRef" (list $root (last .)) }}
    # No limit: the filter has deadlines for the first token, the next and the last.
    timeouts: {request: 0s}
{{- end -}}

{{/* With TLS: how Envoy checks the filter's certificate, with the separator before it. */}}
{{- define "envoy-harmony.gateway.backendTLS" -}}
{{- if .Values.tls.enabled }}
---
# How the gateway checks the filter's certificate.
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata:
  {{- include "envoy-harmony.gateway.metadata" (list . (include "envoy-harmony.fullname" .)) | nindent 2 }}
spec:
  targetRefs:
  - {group: "", kind: Service, name: {{ include "envoy-harmony.headlessName" . }}}
  validation:
    hostname: {{ include "envoy-harmony.headlessHost" . }}
    caCertificateRefs:
    - {group: "", kind: ConfigMap, name: {{ .Values.gateway.filterCA }}}
{{- end }}
{{- end -}}

{{/* The route to an engine's prefill endpoints: (list $ gateway engine). SGLang's calls name the
     endpoint that must take them. */}}
{{- define "envoy-harmony.gateway.prefill" -}}
{{- $root := first . -}}
{{- $engine := default (last .).kind (last .).name }}
---
# Prefill calls for the engine {{ $engine }}.
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  {{- include "envoy-harmony.gateway.metadata" (list $root (printf "%s-engine-%s-prefill" (include "envoy-harmony.fullname" $root) $engine)) | nindent 2 }}
spec:
  parentRefs:
  - {group: gateway.networking.k8s.io, kind: Gateway, name: {{ index . 1 }}}
  rules:
  {{- if hasPrefix "sglang" (last .).kind }}
  # No other endpoint may take a call: the decode engine looks for the prompt there.
  {{- range (last .).prefill }}
  - matches:
    - path: {type: PathPrefix, value: /}
      headers:
      - {name: x-harmony-engine, value: {{ $engine }}-prefill}
      - {name: x-harmony-prefill, value: "{{ include "envoy-harmony.serviceHost" (list $root .service) }}:{{ .service.port }}"}
    backendRefs:
    - {{ include "envoy-harmony.gateway.backendRef" (list $root .service) }}
    timeouts: {request: 0s}
  {{- end }}
  {{- else }}
  - matches:
    - path: {type: PathPrefix, value: /}
      headers: [{name: x-harmony-engine, value: {{ $engine }}-prefill}]
    backendRefs:
    {{- range (last .).prefill }}
    - {{ include "envoy-harmony.gateway.backendRef" (list $root .service) }}
    {{- end }}
    timeouts: {request: 0s}
  {{- end }}
{{- end -}}

{{/* Grants of the namespaces that Services of the routes are in. */}}
{{- define "envoy-harmony.gateway.grants" -}}
{{- $root := . -}}
{{- $services := list (include "envoy-harmony.gateway.upstream" . | fromYaml) -}}
{{- range include "envoy-harmony.engineList" . | fromJsonArray -}}
{{- if and .service (not .inferencePool) -}}{{- $services = append $services .service -}}{{- end -}}
{{- range .prefill -}}{{- $services = append $services .service -}}{{- end -}}
{{- end -}}
{{- $names := dict -}}
{{- range $services -}}
{{- if and .namespace (ne .namespace $root.Release.Namespace) -}}
{{- $_ := set $names .namespace (append (default list (get $names .namespace)) .name | uniq) -}}
{{- end -}}
{{- end -}}
{{- range $namespace, $granted := $names }}
---
# Lets the routes refer to Services of another namespace.
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata:
  name: {{ include "envoy-harmony.nameIn" (list $root (include "envoy-harmony.fullname" $root) $namespace) }}
  namespace: {{ $namespace }}
  labels:
    {{- include "envoy-harmony.labels" $root | nindent 4 }}
spec:
  from:
  - {group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: {{ $root.Release.Namespace }}}
  to:
  {{- range $granted }}
  - {group: "", kind: Service, name: {{ . }}}
  {{- end }}
{{- end }}
{{- end -}}
