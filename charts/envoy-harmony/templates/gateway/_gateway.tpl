{{/* What the other templates ask of a provider. */}}

{{/* The host name of the loopback Gateway's Service. */}}
{{- define "envoy-harmony.gateway.loopbackHost" -}}
{{ include "envoy-harmony.fullname" . }}-loopback.{{ default .Release.Namespace .Values.gateway.namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* The base URL at which helm test reaches the clients' Gateway in the cluster, "" if unknown. */}}
{{- define "envoy-harmony.gateway.url" -}}
{{- end -}}

{{/* The pods of the clients' Gateway, as a list of NetworkPolicyPeers in YAML, "" if unknown. */}}
{{- define "envoy-harmony.gateway.clientPeers" -}}
{{- end -}}

{{/* The pods of the loopback Gateway, {namespace, podSelector} in YAML, "" if unknown. */}}
{{- define "envoy-harmony.gateway.loopbackPods" -}}
{{- end -}}

{{/* Wrong combinations of gateway.* and the rest: a list of errors in JSON. */}}
{{- define "envoy-harmony.gateway.errors" -}}
{{- list | toJson -}}
{{- end -}}
