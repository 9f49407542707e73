package read

import (
	"math"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/toolset"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// With context_management a response begins with a compaction if its prompt is longer
// than a threshold. The first model call writes the summary. The compaction is the first
// item of the output, and the second model call has it in the place of the conversation,
// as every later request has.

// readContextManagement reads when the conversation is to be compacted.
func (f *fieldReader) readContextManagement(v jsontext.Field) *apierror.Error {
	return v.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		if kind := v.Get("type").Str; kind != "compaction" {
			return apierror.Invalid(v.Path+".type", "The only type of context management is compaction.")
		}

		threshold := turn.DefaultContextLength / 4 * 3
		if length := f.rc.Model.ContextLength; length > 0 {
			threshold = length / 4 * 3
		}

		err := v.Fields(func(key string, v jsontext.Field) *apierror.Error {
			switch key {
			case "type":
			case "compact_threshold":
				return v.SetInteger(&threshold, 1, math.MaxInt32)
			default:
				return toolset.ManagementFields.Other(key, v, &f.ignored)
			}
			return nil
		})
		// Nothing can be sealed, or a reply has one model call only.
		if f.reader.Compactor == nil || f.reader.Tools.Client == nil {
			f.ignored.Add("context_management")
			return err
		}

		f.compactAbove = threshold

		return err
	})
}
