{{/* Mode sidecar: the Envoy beside the filter. */}}

{{/* The admin interface of that Envoy. Only processes of the pod reach it. */}}
{{- define "envoy-harmony.envoyAdmin" -}}127.0.0.1:9901{{- end -}}

{{/* The containers that start before the filter. The first writes Envoy's bootstrap, from the same
     configuration as the filter's. Envoy is a sidecar container in Kubernetes' sense: it starts before
     the filter and ends after it, so that the filter can finish its requests. */}}
{{- define "envoy-harmony.envoyContainers" -}}
{{- $envoy := .Values.sidecar.envoy -}}
- name: bootstrap
  image: {{ include "envoy-harmony.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  args:
  - envoy-config
  - --config=/etc/envoy-harmony/config.yaml
  - --listen={{ if contains ":" $envoy.address }}[{{ $envoy.address }}]{{ else }}{{ $envoy.address }}{{ end }}:{{ $envoy.port }}
  - --envoy-admin={{ include "envoy-harmony.envoyAdmin" . }}
  - --balance={{ $envoy.balance }}
  {{- with $envoy.upstream }}
  - --upstream={{ . }}
  {{- end }}
  {{- if $envoy.accessLog }}
  - --access-log
  {{- end }}
  {{- if $envoy.tls.existingSecret }}
  - --listen-sds=/etc/envoy-harmony/{{ include "envoy-harmony.clientsSDS" . }}
  {{- end }}
  - --output={{ include "envoy-harmony.socketDir" . }}/envoy.yaml
  {{- with include "envoy-harmony.env" . | trim }}
  env:
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .Values.extraEnvFrom }}
  envFrom:
  {{- toYaml . | nindent 2 }}
  {{- end }}
  resources:
    requests: {cpu: 10m, memory: 32Mi}
    limits: {memory: 128Mi}
  securityContext:
    {{- toYaml .Values.securityContext | nindent 4 }}
  volumeMounts:
  {{- include "envoy-harmony.mounts" . | trim | nindent 2 }}
- name: envoy
  image: {{ include "envoy-harmony.imageRef" $envoy.image }}
  imagePullPolicy: {{ $envoy.image.pullPolicy }}
  restartPolicy: Always
  command: [envoy]
  args:
  - --config-path
  - {{ include "envoy-harmony.socketDir" . }}/envoy.yaml
  - --log-level
  - warning
  - --disable-hot-restart
  {{- with $envoy.concurrency }}
  - --concurrency
  - {{ quote . }}
  {{- end }}
  ports:
  - {name: http, containerPort: {{ $envoy.port }}, protocol: TCP}
  startupProbe:
    tcpSocket: {port: http}
    periodSeconds: 1
    failureThreshold: 60
  readinessProbe:
    tcpSocket: {port: http}
    periodSeconds: 5
    failureThreshold: 2
  livenessProbe:
    tcpSocket: {port: http}
    periodSeconds: 10
    failureThreshold: 3
  resources:
    {{- toYaml $envoy.resources | nindent 4 }}
  securityContext:
    {{- toYaml .Values.securityContext | nindent 4 }}
  volumeMounts:
  - {name: envoy-harmony-sockets, mountPath: {{ include "envoy-harmony.socketDir" . }}}
  {{- if $envoy.tls.existingSecret }}
  - {name: envoy-harmony-config, mountPath: /etc/envoy-harmony, readOnly: true}
  - {name: envoy-harmony-clients, mountPath: {{ include "envoy-harmony.clientsDir" . }}, readOnly: true}
  {{- end }}
{{- end -}}

{{/* The file of the ConfigMap by which Envoy finds the certificate of the clients' listener, and the folder of that. */}}
{{- define "envoy-harmony.clientsSDS" -}}clients-tls.yaml{{- end -}}
{{- define "envoy-harmony.clientsDir" -}}/etc/envoy-harmony-clients{{- end -}}

{{/* A strategic merge patch for the Deployment or DaemonSet of an Envoy. */}}
{{- define "envoy-harmony.patch" -}}
spec:
  template:
    metadata:
      labels:
        {{- include "envoy-harmony.patchLabels" . | nindent 8 }}
      annotations:
        envoy-harmony/restart-checksum: {{ include "envoy-harmony.restartChecksum" . }}
    spec:
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      # Both processes reach each other's sockets by this group.
      securityContext: {fsGroup: {{ .Values.podSecurityContext.fsGroup }}}
      initContainers:
      # A sidecar container in Kubernetes' sense: it starts before Envoy and ends after it.
      - {{ include "envoy-harmony.container" . | nindent 8 | trim }}
        restartPolicy: Always
      containers:
      - name: {{ .Values.sidecar.patch.container }}
        volumeMounts:
        - {name: envoy-harmony-sockets, mountPath: {{ include "envoy-harmony.socketDir" . }}}
      volumes:
        {{- include "envoy-harmony.volumes" . | trim | nindent 6 }}
{{- end -}}

{{/* The label that the patch adds to pods. */}}
{{- define "envoy-harmony.patchLabels" -}}
envoy-harmony/release: {{ .Release.Name }}
{{- end -}}
