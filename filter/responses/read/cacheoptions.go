package read

import (
	"cmp"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// replies names the response, and the one that its prompt is compared with. A summary is
// no turn of the conversation.
func (d *decoder) replies() turn.Replies {
	if d.items.compacting.triggered {
		return turn.Replies{}
	}
	own := d.id
	if d.codex != nil && d.codex.continues {
		own = cmp.Or(d.codex.turn.ID, own)
	}
	return turn.Replies{Own: own, Compared: d.fields.input.Replies.Compared}
}

// readCacheOptions reads how prompts are to be cached, which the engine decides by
// itself, and the response whose prompt this one is compared with. The response repeats
// the options.
func (f *fieldReader) readCacheOptions(v jsontext.Field) *apierror.Error {
	// The response has both members, also those that the request leaves out.
	mode, ttl, compared := "implicit", "30m", ""
	err := v.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "mode":
			if v.Str != "implicit" && v.Str != "explicit" {
				return apierror.Invalid(v.Path, "The mode of prompt_cache_options must be implicit or explicit.")
			}
			mode = strings.Clone(v.Str)
		case "ttl":
			if v.Str != "30m" && v.Str != "12h" {
				return apierror.Invalid(v.Path, "The ttl of prompt_cache_options must be 30m or 12h.")
			}
			ttl = strings.Clone(v.Str)
		case "comparison_response_id":
			compared, err = v.ShortText()
			if f.rc.Prompts == nil {
				f.ignored.Add(v.Path)
			}
		case "prewarm":
			var on bool
			if on, err = v.Switch(); on {
				f.leaveUnread(v)
			}
		default:
			err = toolset.CacheFields.Other(key, v, &f.ignored)
		}

		return err
	})
	dst := jsontext.AppendString([]byte(`,"prompt_cache_options":{"mode":`), mode)
	dst = jsontext.AppendString(append(dst, `,"ttl":`...), ttl)
	if compared != "" {
		dst = jsontext.AppendString(append(dst, `,"comparison_response_id":`...), compared)
	}

	dst = append(dst, '}')
	f.echo.cacheOptions, f.input.Replies.Compared = dst, strings.Clone(compared)
	f.options.Compared = compared != "" && f.rc.Prompts != nil
	return err
}
