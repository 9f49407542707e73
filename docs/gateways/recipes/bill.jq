# What each tenant has used, from the lines of the filter's log:
#
#	jq -nRrf bill.jq LOG...

# With six digits after the point: jq writes 0.000008 as 8e-06.
def money: (. * 1e6 | round | tostring)
  | "000000"[:([7 - length, 0] | max)] + .
  | .[:-6] + "." + .[-6:];

["tenant", "requests", "refused", "prompt", "cached", "output", "cost"],
([inputs | fromjson? | select(.msg == "request" and .tenant and .model != "")]
  | group_by(.tenant)[]
  # No engine has read the prompt of a request that was refused.
  | map(select(.output_tokens)) as $answered
  | [
      .[0].tenant,
      length,
      (map(select(.budget)) | length),
      ($answered | map(.prompt_tokens // 0) | add // 0),
      ($answered | map(.cached_tokens // 0) | add // 0),
      ($answered | map(.output_tokens) | add // 0),
      ($answered | map(.cost // 0) | add // 0 | money)
    ])
| @tsv
