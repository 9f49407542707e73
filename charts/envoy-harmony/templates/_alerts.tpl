{{/* The alerts. m are the matchers of every metric, requests the requests for models per second. What
     compares replicas does so by job, because a namespace may have several releases. The
     runbook of an alert is the heading of its name in docs/alerts.md. */}}
{{- define "envoy-harmony.alerts" -}}
{{- $value := "{{ $value | humanizePercentage }}" -}}
- alert: HarmonyRepairs
  severity: warning
  for: 15m
  expr: sum(rate(harmony_parsing_errors_total{ {{- .m -}} }[10m])) / {{ .requests }} > {{ .rule.repairRatio }}
  summary: The output of a model is malformed more often than usual.
  description: "{{ $value }} of the replies needed a repair. An engine's update, its sampling or its handling of special tokens is the usual reason."
- alert: HarmonyRequestsFail
  severity: critical
  for: 10m
  expr: sum(rate(harmony_requests_total{ {{- .m }},api!="models",outcome="failed"}[10m])) / {{ .requests }} > {{ .rule.failureRatio }} and sum(increase(harmony_requests_total{ {{- .m }},api!="models",outcome="failed"}[10m])) >= {{ .rule.failedRequests }}
  summary: Requests for gpt-oss models fail.
  description: "{{ $value }} of the requests end with an error that is not the client's. The log lines with the outcome failed name the engine and the cause."
- alert: HarmonySlow
  severity: warning
  for: 15m
  expr: histogram_quantile(0.99, sum by (le) (rate(harmony_message_seconds_bucket{ {{- .m -}} }[10m]))) > {{ .rule.messageSeconds }}
  summary: The filter itself delays requests.
  description: "The 99th percentile of the filter's own time for a message is {{ `{{ $value | humanizeDuration }}` }}. It lacks CPU, or requests are very long."
- alert: HarmonyStoreFails
  severity: critical
  for: 5m
  expr: sum by (operation) (rate(harmony_store_errors_total{ {{- .m -}} }[5m])) > 0
  summary: The store fails.
  description: "{{ `{{ $labels.operation }}` }} fails {{ `{{ $value | humanize }}` }} times a second. What is not stored cannot be continued, and background responses are refused."
- alert: HarmonyStoreHangs
  severity: critical
  for: 5m
  expr: sum(max_over_time(harmony_store_hangs{ {{- .m -}} }[3m])) > 0
  summary: The store does not answer.
  description: "{{ `{{ $value | humanize }}` }} replicas of the filter have made no accesses to the store in the last minutes, because it hangs. Chat goes on without it; requests that need it are a 503."
- alert: HarmonyBudgetCountsDropped
  severity: warning
  for: 5m
  expr: sum by (budget) (rate(harmony_budget_counts_dropped_total{ {{- .m -}} }[5m])) > 0
  summary: A token budget has more subjects than there is room for.
  description: "{{ `{{ $value | humanize }}` }} counts of the budget {{ `{{ $labels.budget }}` }} make room for others in a second. Their subjects begin anew. A client makes up names, or the store in memory is too small for so many."
- alert: HarmonyRetries
  severity: warning
  for: 15m
  expr: (sum(rate(harmony_retries_total{ {{- .m -}} }[10m])) + (sum(rate(harmony_continuations_total{ {{- .m }},reason=~"engine_.*"}[10m])) or vector(0))) / {{ .requests }} > {{ .rule.retryRatio }}
  summary: Model calls are retried or continued.
  description: "{{ $value }} of the requests needed a model call at another replica. A replica of an engine fails, before its first token or in the middle of replies."
- alert: HarmonyToolsFail
  severity: warning
  for: 15m
  expr: sum by (server) (rate(harmony_tool_calls_total{ {{- .m }},server!="request",outcome="failed"}[10m])) / sum by (server) (rate(harmony_tool_calls_total{ {{- .m }},server!="request"}[10m])) > {{ .rule.toolFailureRatio }}
  summary: A tool server of the configuration fails.
  description: "{{ $value }} of the calls of {{ `{{ $labels.server }}` }} fail. Models get an error in place of its results, and answer without them."
- alert: HarmonySealedContentLost
  severity: warning
  for: 15m
  expr: sum(rate(harmony_unopened_content_total{ {{- .m -}} }[10m])) / {{ .requests }} > {{ .rule.unopenedRatio }}
  summary: Encrypted content that clients send back cannot be opened.
  description: "There are {{ `{{ $value | printf \"%.2f\" }}` }} such texts for each request. The replicas have different keys or none, or a key that is still in use was removed."
- alert: HarmonyNoStreams
  severity: critical
  for: 10m
  expr: sum(rate(harmony_message_seconds_count{ {{- .m }},message="request_headers"}[10m])) == 0 and sum(rate(harmony_message_seconds_count{ {{- .m }},message="request_headers"}[10m] offset 1h)) > 0.1
  summary: The filter gets no requests any more.
  description: "There were requests an hour ago. The gateway may have lost the filter from its routes: then requests for gpt-oss models reach nobody who understands them."
- alert: HarmonyUnevenStreams
  severity: warning
  for: 30m
  expr: max by (namespace, job) (harmony_streams_inflight{ {{- .m -}} }) > 20 and min by (namespace, job) (harmony_streams_inflight{ {{- .m -}} }) < 0.05 * max by (namespace, job) (harmony_streams_inflight{ {{- .m -}} })
  summary: One replica of the filter has nearly all streams.
  description: "The busiest replica has {{ `{{ $value | humanize }}` }} streams, another one nearly none. The gateway uses the filter's Service in place of the headless one."
- alert: HarmonyConfigRefused
  severity: warning
  for: 5m
  expr: min by (pod) (harmony_config_last_reload_successful{ {{- .m -}} }) == 0
  summary: A changed configuration is refused.
  description: "The filter in {{ `{{ $labels.pod }}` }} goes on with the configuration before. Its log names every key at fault."
- alert: HarmonyConfigsDiffer
  severity: warning
  for: 30m
  expr: max by (namespace, job) (harmony_config_hash{ {{- .m -}} }) != min by (namespace, job) (harmony_config_hash{ {{- .m -}} })
  summary: Replicas of the filter have different configurations.
  description: A rollout is stuck, or one of the replicas has refused the last change.
- alert: HarmonyRecordsLost
  severity: warning
  for: 15m
  expr: sum by (pod) (rate(harmony_records_total{ {{- .m }},outcome="dropped"}[10m])) > 0
  summary: Records of exchanges are lost.
  description: "{{ `{{ $labels.pod }}` }} loses {{ `{{ $value | humanize }}` }} records a second. The folder of records is full or slow. Requests are not affected."
- alert: HarmonyCertificateExpires
  severity: critical
  for: 15m
  expr: min(harmony_tls_certificate_not_after_seconds{ {{- .m -}} }) - time() < {{ mul .rule.certificateDays 86400 }}
  summary: The certificate of the filter expires.
  description: "It is valid for {{ `{{ $value | humanizeDuration }}` }}. After that the gateway cannot connect to the filter, and requests for gpt-oss models fail."
- alert: HarmonyCertificateRefused
  severity: warning
  for: 5m
  expr: sum by (pod) (increase(harmony_tls_reloads_total{ {{- .m }},outcome="failed"}[30m])) > 0
  summary: Changed TLS files cannot be used.
  description: "The filter in {{ `{{ $labels.pod }}` }} goes on with the files before. Its log says what is wrong with the new ones."
- alert: HarmonyHandshakesFail
  severity: warning
  for: 10m
  expr: sum by (pod) (rate(harmony_tls_handshake_errors_total{ {{- .m -}} }[10m])) > 0.1
  summary: TLS connections to the filter fail.
  description: "{{ `{{ $value | humanize }}` }} connections a second to {{ `{{ $labels.pod }}` }} fail in their handshake. A gateway that does not trust the filter's certificate, or has no certificate that the filter accepts, gets no reply for gpt-oss models."
{{- end -}}
