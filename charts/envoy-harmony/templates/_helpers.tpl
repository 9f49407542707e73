{{/* Names, labels, images, durations. */}}

{{- define "envoy-harmony.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of the main objects. Others add a suffix of up to 12 characters. */}}
{{- define "envoy-harmony.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 51 | trimSuffix "-" -}}
{{- else if contains (include "envoy-harmony.name" .) .Release.Name -}}
{{- .Release.Name | trunc 51 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "envoy-harmony.name" .) | trunc 51 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The Service that has an address for each pod: attachments use this one. */}}
{{- define "envoy-harmony.headlessName" -}}
{{- include "envoy-harmony.fullname" . }}-headless
{{- end -}}

{{/* The filter's host name, as Envoy connects to it and as its certificate has it. */}}
{{- define "envoy-harmony.headlessHost" -}}
{{- include "envoy-harmony.headlessName" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* The labels of the release, which all of its objects have. */}}
{{- define "envoy-harmony.releaseLabels" -}}
app.kubernetes.io/name: {{ include "envoy-harmony.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The labels by which the filter's pods are selected. Istio copies the labels of a Gateway to its
     pods, so that those of the release would select the loopback Gateway's too. */}}
{{- define "envoy-harmony.selectorLabels" -}}
{{ include "envoy-harmony.releaseLabels" . }}
app.kubernetes.io/component: filter
{{- end -}}

{{/* The labels of the pod of helm test, which is none of the filter's. */}}
{{- define "envoy-harmony.testLabels" -}}
app.kubernetes.io/name: {{ include "envoy-harmony.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "envoy-harmony.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "envoy-harmony.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "envoy-harmony.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "envoy-harmony.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* An image reference of {repository, tag, digest}. */}}
{{- define "envoy-harmony.imageRef" -}}
{{- if .digest -}}
{{- .repository }}@{{ .digest -}}
{{- else -}}
{{- .repository }}:{{ .tag -}}
{{- end -}}
{{- end -}}

{{- define "envoy-harmony.image" -}}
{{- include "envoy-harmony.imageRef" .Values.image -}}
{{- end -}}

{{/* A Go duration, such as 1m30s, in whole seconds, rounded up. */}}
{{- define "envoy-harmony.seconds" -}}
{{- $seconds := 0.0 -}}
{{- $units := dict "h" 3600.0 "m" 60.0 "s" 1.0 "ms" 0.001 -}}
{{- range regexFindAll "[0-9.]+(ms|h|m|s)" (toString .) -1 -}}
{{- $number := regexFind "[0-9.]+" . -}}
{{- $seconds = addf $seconds (mulf (float64 $number) (get $units (trimPrefix $number .))) -}}
{{- end -}}
{{- ceil $seconds | int64 -}}
{{- end -}}

{{/* The bytes of a memory quantity such as 2Gi, 512M or 1.5e9, and of a size of the configuration such as 32MiB; 0 if it
     is none. */}}
{{- define "envoy-harmony.bytes" -}}
{{- $quantity := toString . | trim -}}
{{- $units := dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "" 1 -}}
{{- $unit := regexFind "[A-Za-z]+$" $quantity -}}
{{- $number := trimSuffix $unit $quantity | trim -}}
{{- if hasSuffix "iB" $unit -}}{{- $unit = trimSuffix "B" $unit -}}{{- end -}}
{{- if and (hasKey $units $unit) (regexMatch "^[0-9]+([.][0-9]+)?([eE][+]?[0-9]+)?$" $number) -}}
{{- mulf (float64 $number) (float64 (get $units $unit)) | int64 -}}
{{- else -}}0{{- end -}}
{{- end -}}

{{/* Whether there are, or may be, several replicas: "true" or "". */}}
{{- define "envoy-harmony.severalReplicas" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1) (eq (include "envoy-harmony.patched" .) "true") -}}true{{- end -}}
{{- end -}}

{{/* Whether the filter comes into the pods of an Envoy that is not the chart's. */}}
{{- define "envoy-harmony.patched" -}}
{{- if and (eq .Values.mode "sidecar") (not .Values.sidecar.envoy.enabled) -}}true{{- end -}}
{{- end -}}

{{/* The Deployment and the Service of the simulated engine. */}}
{{- define "envoy-harmony.simulatorName" -}}
{{- include "envoy-harmony.fullname" . }}-sim
{{- end -}}

{{/* The simulated engine's image: by default where "make image" puts it, beside the filter's. */}}
{{- define "envoy-harmony.simulatorImage" -}}
{{- $image := .Values.simulator.image -}}
{{- $repository := default (printf "%s-engine-sim" .Values.image.repository) $image.repository -}}
{{- include "envoy-harmony.imageRef" (dict "repository" $repository "tag" (default .Values.image.tag $image.tag) "digest" $image.digest) -}}
{{- end -}}

{{/* The Secret with the certificate of the clients' listener, "" if that has no TLS or is not the chart's. */}}
{{- define "envoy-harmony.clientsSecret" -}}
{{- if eq .Values.mode "sidecar" -}}
{{- .Values.sidecar.envoy.tls.existingSecret -}}
{{- else -}}
{{- .Values.gateway.tls.existingSecret -}}
{{- end -}}
{{- end -}}

{{/* The port at which clients connect: of the sidecar's Service, or of the Gateway's listener. */}}
{{- define "envoy-harmony.clientsPort" -}}
{{- $set := ternary .Values.sidecar.service.port .Values.gateway.listenerPort (eq .Values.mode "sidecar") -}}
{{- default (ternary 443 80 (ne (include "envoy-harmony.clientsSecret" .) "")) $set -}}
{{- end -}}

{{/* What the values say of the clients' listener: "https", "http", or "" of a Gateway that the chart does not make, if
     they have no port of it. */}}
{{- define "envoy-harmony.clientsScheme" -}}
{{- $g := .Values.gateway -}}
{{- if include "envoy-harmony.clientsSecret" . -}}https
{{- else if or (eq .Values.mode "sidecar") $g.create -}}http
{{- else if $g.listenerPort -}}
{{- ternary "https" "http" (eq (int $g.listenerPort) 443) -}}
{{- end -}}
{{- end -}}

{{/* The base URL in the notes, if "envoy-harmony.testURL" is "". The name is the owner's to write, unless the route has
     one. */}}
{{- define "envoy-harmony.askURL" -}}
{{- $scheme := include "envoy-harmony.clientsScheme" . -}}
{{- $port := include "envoy-harmony.clientsPort" . -}}
{{- $name := ternary "NAME-IN-THE-CERTIFICATE" "YOUR-GATEWAY" (eq $scheme "https") -}}
{{- if and (eq .Values.mode "deployment") .Values.gateway.hostnames -}}
{{- $name = first .Values.gateway.hostnames | replace "*" "NAME" -}}
{{- end -}}
{{- if $scheme -}}
{{ $scheme }}://{{ $name }}{{ if ne $port (ternary "443" "80" (eq $scheme "https")) }}:{{ $port }}{{ end }}/v1
{{- else -}}
URL-OF-YOUR-GATEWAY/v1
{{- end -}}
{{- end -}}

{{/* The base URL at which the API answers in the cluster, "" if the chart does not know it. With HTTPS it does not:
     the certificate is for a name that only the owner knows. */}}
{{- define "envoy-harmony.testURL" -}}
{{- if .Values.test.url -}}
{{- .Values.test.url -}}
{{- else if or (include "envoy-harmony.patched" .) (eq (include "envoy-harmony.clientsScheme" .) "https") -}}
{{- else if eq .Values.mode "sidecar" -}}
http://{{ include "envoy-harmony.fullname" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}:{{ include "envoy-harmony.clientsPort" . }}/v1
{{- else if ne .Values.gateway.provider "none" -}}
{{- include "envoy-harmony.gateway.url" . -}}
{{- end -}}
{{- end -}}

{{/* What the question of helm test lacks of a tenant, "" if nothing. Where it reaches the sidecar's Envoy directly, nobody
     but itself sets the tenant's header; else a gateway makes it of credentials. */}}
{{- define "envoy-harmony.testTenant" -}}
{{- $tenant := .Values.config.tenant_header -}}
{{- $names := list -}}
{{- range $name, $value := .Values.test.headers -}}{{- $names = append $names (lower $name) -}}{{- end -}}
{{- if or (not $tenant) (has (lower (toString $tenant)) $names) -}}
{{- else if and (eq .Values.mode "sidecar") (not .Values.test.url) -}}
The question needs a tenant: set test.headers.{{ $tenant }}.
{{- else if not (or $names .Values.test.existingSecret) -}}
The question needs a tenant: set test.existingSecret, an API key of which your gateway makes {{ $tenant }}, or test.headers.
{{- end -}}
{{- end -}}
