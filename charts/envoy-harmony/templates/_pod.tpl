{{/* The filter's container, its environment and its volumes: in the pods of the Deployment, and in
     the patch for the pods of an Envoy of somebody else. */}}

{{/* What the chart's Secret has: {key: value} in YAML. */}}
{{- define "envoy-harmony.secretData" -}}
{{- $data := dict -}}
{{- if and (not .Values.store.existingSecret) (ne .Values.store.url "memory:") -}}
{{- $_ := set $data "store-url" .Values.store.url -}}
{{- end -}}
{{- if .Values.sealKeys.keys -}}
{{- $_ := set $data "seal-keys" (toJson .Values.sealKeys.keys) -}}
{{- end -}}
{{- range .Values.toolSecrets -}}
{{- if .value -}}
{{- $_ := set $data .env .value -}}
{{- end -}}
{{- end -}}
{{- if $data -}}{{- toYaml $data -}}{{- end -}}
{{- end -}}

{{/* A variable from a Secret: (list name secret key). */}}
{{- define "envoy-harmony.secretEnv" -}}
- name: {{ index . 0 }}
  valueFrom: {secretKeyRef: {name: {{ index . 1 | quote }}, key: {{ index . 2 | quote }}}}
{{- end -}}

{{/* The variable of the seal keys. */}}
{{- define "envoy-harmony.sealEnv" -}}
{{- if .Values.sealKeys.existingSecret }}
{{ include "envoy-harmony.secretEnv" (list "ENVOY_HARMONY_RESPONSES_SEAL_KEYS" .Values.sealKeys.existingSecret .Values.sealKeys.existingSecretKey) }}
{{- else if .Values.sealKeys.keys }}
{{ include "envoy-harmony.secretEnv" (list "ENVOY_HARMONY_RESPONSES_SEAL_KEYS" (include "envoy-harmony.fullname" .) "seal-keys") }}
{{- end }}
{{- end -}}

{{/* GOMEMLIMIT of a container with a memory limit: seven tenths of it. The rest is for what the
     Go runtime does not count. The defaults of the filter's own limits follow from it. */}}
{{- define "envoy-harmony.memoryEnv" -}}
{{- with ((.limits).memory) -}}
{{- $bytes := include "envoy-harmony.bytes" . | int64 -}}
{{- if gt $bytes (int64 0) }}
- {name: GOMEMLIMIT, value: {{ div (mul $bytes 7) 10 | quote }}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "envoy-harmony.env" -}}
{{- $own := include "envoy-harmony.fullname" . -}}
{{- $data := include "envoy-harmony.secretData" . | fromYaml -}}
{{- if .Values.store.existingSecret }}
{{ include "envoy-harmony.secretEnv" (list "ENVOY_HARMONY_STORE_URL" .Values.store.existingSecret .Values.store.existingSecretKey) }}
{{- else if hasKey $data "store-url" }}
{{ include "envoy-harmony.secretEnv" (list "ENVOY_HARMONY_STORE_URL" $own "store-url") }}
{{- end }}
{{- include "envoy-harmony.sealEnv" . }}
{{- if .Values.inspector.enabled }}
{{ include "envoy-harmony.secretEnv" (list "ENVOY_HARMONY_INSPECTOR_TOKEN" .Values.inspector.existingSecret .Values.inspector.existingSecretKey) }}
{{- end }}
{{- range .Values.toolSecrets }}
{{ include "envoy-harmony.secretEnv" (list .env (default $own .existingSecret) (default .env .key)) }}
{{- end }}
{{- $set := false -}}
{{- range .Values.extraEnv -}}{{- if eq .name "GOMEMLIMIT" -}}{{- $set = true -}}{{- end -}}{{- end -}}
{{- if not $set }}
{{- include "envoy-harmony.memoryEnv" .Values.resources }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The filter's container. */}}
{{- define "envoy-harmony.container" -}}
name: envoy-harmony
image: {{ include "envoy-harmony.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
- serve
- --config=/etc/envoy-harmony/config.yaml
{{- if and (eq .Values.mode "sidecar") .Values.sidecar.envoy.enabled }}
- --drain-envoy=http://{{ include "envoy-harmony.envoyAdmin" . }}
{{- end }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- with include "envoy-harmony.env" . | trim }}
env:
{{ . }}
{{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
{{ toYaml . }}
{{- end }}
ports:
{{- if eq .Values.mode "deployment" }}
- {name: grpc, containerPort: {{ .Values.service.port }}, protocol: TCP}
{{- if .Values.websocket.enabled }}
- {name: websocket, containerPort: {{ .Values.websocket.port }}, protocol: TCP}
{{- end }}
{{- end }}
- {name: admin, containerPort: {{ .Values.adminPort }}, protocol: TCP}
startupProbe:
  grpc: {port: {{ .Values.adminPort }}, service: liveness}
  periodSeconds: {{ .Values.probes.startup.periodSeconds }}
  failureThreshold: {{ .Values.probes.startup.failureThreshold }}
readinessProbe:
  grpc: {port: {{ .Values.adminPort }}, service: readiness}
  periodSeconds: {{ .Values.probes.readiness.periodSeconds }}
  failureThreshold: {{ .Values.probes.readiness.failureThreshold }}
livenessProbe:
  grpc: {port: {{ .Values.adminPort }}, service: liveness}
  periodSeconds: {{ .Values.probes.liveness.periodSeconds }}
  failureThreshold: {{ .Values.probes.liveness.failureThreshold }}
resources:
{{- toYaml .Values.resources | nindent 2 }}
securityContext:
{{- if include "envoy-harmony.patched" . }}
{{- /* The pod is not the chart's, so that the container has all of it. */}}
{{- toYaml (merge (deepCopy .Values.securityContext) (pick .Values.podSecurityContext "runAsNonRoot" "runAsUser" "runAsGroup" "seccompProfile")) | nindent 2 }}
{{- else }}
{{- toYaml .Values.securityContext | nindent 2 }}
{{- end }}
volumeMounts:
{{- include "envoy-harmony.mounts" . }}
{{- end -}}

{{- define "envoy-harmony.mounts" }}
# The folder, not the file: only so does a changed ConfigMap arrive in the container.
- {name: envoy-harmony-config, mountPath: /etc/envoy-harmony, readOnly: true}
{{- if eq .Values.mode "sidecar" }}
- {name: envoy-harmony-sockets, mountPath: {{ include "envoy-harmony.socketDir" . }}}
{{- end }}
{{- if .Values.tls.enabled }}
- {name: envoy-harmony-tls, mountPath: /etc/envoy-harmony-tls, readOnly: true}
{{- if or .Values.tls.clientCA .Values.tls.clientCAConfigMap }}
- {name: envoy-harmony-ca, mountPath: /etc/envoy-harmony-ca, readOnly: true}
{{- end }}
{{- end }}
{{- with .Values.gateway.loopback.tls }}
{{- if .caConfigMap }}
- {name: envoy-harmony-loopback-ca, mountPath: /etc/envoy-harmony-loopback-ca, readOnly: true}
{{- end }}
{{- if .clientSecret }}
- {name: envoy-harmony-loopback-tls, mountPath: /etc/envoy-harmony-loopback-tls, readOnly: true}
{{- end }}
{{- end }}
{{- if .Values.store.persistence.enabled }}
- {name: envoy-harmony-store, mountPath: /var/lib/envoy-harmony}
{{- end }}
{{- if .Values.records.enabled }}
- {name: envoy-harmony-records, mountPath: {{ include "envoy-harmony.recordFolder" . }}}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "envoy-harmony.volumes" }}
- name: envoy-harmony-config
  configMap: {name: {{ include "envoy-harmony.fullname" . }}}
{{- if eq .Values.mode "sidecar" }}
- name: envoy-harmony-sockets
  emptyDir: {}
{{- end }}
{{- if .Values.tls.enabled }}
- name: envoy-harmony-tls
  secret: {secretName: {{ include "envoy-harmony.tlsSecretName" . }}}
{{- if or .Values.tls.clientCA .Values.tls.clientCAConfigMap }}
- name: envoy-harmony-ca
  configMap: {name: {{ default (printf "%s-client-ca" (include "envoy-harmony.fullname" .)) .Values.tls.clientCAConfigMap }}}
{{- end }}
{{- end }}
{{- with .Values.gateway.loopback.tls }}
{{- if .caConfigMap }}
- name: envoy-harmony-loopback-ca
  configMap: {name: {{ .caConfigMap }}}
{{- end }}
{{- if .clientSecret }}
- name: envoy-harmony-loopback-tls
  secret: {secretName: {{ .clientSecret }}}
{{- end }}
{{- end }}
{{- if .Values.store.persistence.enabled }}
- name: envoy-harmony-store
  persistentVolumeClaim: {claimName: {{ default (printf "%s-store" (include "envoy-harmony.fullname" .)) .Values.store.persistence.existingClaim }}}
{{- end }}
{{- if .Values.records.enabled }}
- name: envoy-harmony-records
{{- if .Values.records.existingClaim }}
  persistentVolumeClaim: {claimName: {{ .Values.records.existingClaim }}}
{{- else }}
  emptyDir: {sizeLimit: {{ .Values.records.sizeLimit }}}
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "envoy-harmony.tlsSecretName" -}}
{{- default (printf "%s-tls" (include "envoy-harmony.fullname" .)) .Values.tls.existingSecret -}}
{{- end -}}

{{/* How pods are spread: over zones and nodes, where possible. */}}
{{- define "envoy-harmony.spread" -}}
{{- $labels := include "envoy-harmony.selectorLabels" . -}}
{{- if kindIs "slice" .Values.topologySpreadConstraints -}}
{{- toYaml .Values.topologySpreadConstraints -}}
{{- else -}}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels:
      {{- $labels | nindent 6 }}
{{- end }}
{{- end -}}
{{- end -}}
