{{/* What an installation leaves open, for NOTES.txt: a list of sentences in JSON. Each says who can do what, and the
     value or the policy that closes it. What the chart cannot know (policies of a gateway) is said as such. */}}
{{- define "envoy-harmony.open" -}}
{{- $open := list -}}
{{- range list "Clients" "Inside" "Tenants" -}}
{{- $open = concat $open (include (printf "envoy-harmony.open%s" .) $ | fromJsonArray) -}}
{{- end -}}
{{- toJson $open -}}
{{- end -}}

{{/* Who reaches the listener of the clients, and how. */}}
{{- define "envoy-harmony.openClients" -}}
{{- $open := list -}}
{{- $g := .Values.gateway -}}
{{- $name := include "envoy-harmony.fullname" . -}}
{{- if include "envoy-harmony.patched" . -}}
{{- else if eq .Values.mode "sidecar" -}}
{{- $type := .Values.sidecar.service.type -}}
{{- if ne $type "ClusterIP" -}}
{{- $open = append $open (printf "NO AUTHENTICATION: the Service %s is of type %s, and its Envoy authenticates nobody: every client that reaches its address uses the engines. Set sidecar.service.type: ClusterIP, and put a gateway in front that authenticates clients." $name $type) -}}
{{- else if not (and .Values.networkPolicy.enabled .Values.networkPolicy.clientsFrom) -}}
{{- $open = append $open (printf "NO AUTHENTICATION: the Envoy of the Service %s authenticates nobody: every pod of the cluster can use the engines. Put a gateway in front that authenticates clients, and name it in networkPolicy.clientsFrom." $name) -}}
{{- end -}}
{{- if not (include "envoy-harmony.clientsSecret" .) -}}
{{- $open = append $open "NO TLS: keys and prompts of clients cross the network in plain text. Set sidecar.envoy.tls.existingSecret." -}}
{{- end -}}
{{- else if eq $g.provider "none" -}}
{{- else if $g.create -}}
{{- if ne $g.serviceType "ClusterIP" -}}
{{- $open = append $open (printf "NO AUTHENTICATION: the Service of the Gateway %s is of type %s, and the chart makes no policy that authenticates clients: without one of yours, every client that reaches its address uses the engines. See docs/gateways, or set gateway.serviceType: ClusterIP." $g.name $g.serviceType) -}}
{{- else -}}
{{- $open = append $open (printf "NO AUTHENTICATION: the chart makes no policy that authenticates clients at the Gateway %s: without one of yours, every pod of the cluster can use the engines. See docs/gateways before you set another gateway.serviceType than ClusterIP." $g.name) -}}
{{- end -}}
{{- if not (include "envoy-harmony.clientsSecret" .) -}}
{{- $open = append $open (printf "NO TLS: the listener of the Gateway %s is HTTP: keys and prompts of clients cross the network in plain text. Set gateway.tls.existingSecret." $g.name) -}}
{{- end -}}
{{- else -}}
{{- $open = append $open (printf "The Gateway %s is yours: without a policy of yours that authenticates clients, every client that reaches it uses the engines." $g.name) -}}
{{- end -}}
{{- toJson $open -}}
{{- end -}}

{{/* Ports of the cluster that only a part of it may reach. */}}
{{- define "envoy-harmony.openInside" -}}
{{- $open := list -}}
{{- $policy := .Values.networkPolicy.enabled -}}
{{- if and (eq .Values.mode "deployment") (not $policy) -}}
{{- if and (ne .Values.gateway.provider "none") .Values.gateway.loopback.enabled -}}
{{- $open = append $open (printf "The loopback Gateway %s, port %d, leads every pod of the cluster to the engines. Set networkPolicy.enabled." (include "envoy-harmony.gateway.loopbackName" .) (int .Values.gateway.loopback.port)) -}}
{{- end -}}
{{- if not (or .Values.tls.clientCA .Values.tls.clientCAConfigMap) -}}
{{- $open = append $open (printf "Every pod that reaches port %d of the filter can use it as Envoy does, as any tenant. Set networkPolicy.enabled, or tls.clientCA." (int .Values.service.port)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.render.enabled (not (and $policy .Values.render.from)) -}}
{{- $open = append $open (printf "The render service, port %d, has no authentication. Set networkPolicy.enabled and render.from." (int .Values.render.port)) -}}
{{- end -}}
{{- toJson $open -}}
{{- end -}}

{{/* Whose data and whose quotas are apart. */}}
{{- define "envoy-harmony.openTenants" -}}
{{- $open := list -}}
{{- $config := .Values.config -}}
{{- $budgets := default list $config.token_budgets -}}
{{- if $config.tenant_header -}}
{{- $open = append $open (printf "The filter believes the header %s (config.tenant_header): what authenticates clients must set it, and replace a client's own." $config.tenant_header) -}}
{{- else -}}
{{- $open = append $open "NO TENANTS: config.tenant_header is not set: a client that knows the id of another's stored response or conversation can read it." -}}
{{- range $i, $budget := $budgets -}}
{{- if or (has "tenant" (default list $budget.per)) $budget.tenant -}}
{{- $open = append $open (printf "NO QUOTA PER TENANT: config.token_budgets[%d] (%s) is for tenants, and there are none: all clients share it, or it bounds nobody. Set config.tenant_header." $i $budget.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $i, $budget := $budgets -}}
{{- if has "key" (default list $budget.per) -}}
{{- $open = append $open (printf "config.token_budgets[%d] (%s) is per key: a key that a client makes up has tokens of its own, unless the gateway refuses unknown keys." $i $budget.name) -}}
{{- end -}}
{{- end -}}
{{- if and $budgets (eq (include "envoy-harmony.storeKind" .) "memory") -}}
{{- $each := ternary ", and each replica counts for itself" "" (eq (include "envoy-harmony.severalReplicas" .) "true") -}}
{{- $open = append $open (printf "QUOTAS END WITH A POD: the store is memory:, so that config.token_budgets begin again when the filter restarts%s. Set another store.url, or store.existingSecret." $each) -}}
{{- end -}}
{{- toJson $open -}}
{{- end -}}
