package read

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// readDiagnostics reads {"previous_message_id":…}: the message whose prompt this one
// should extend, or null.
func (d *decoder) readDiagnostics(v jsontext.Field) *apierror.Error {
	if d.rc.Prompts == nil {
		d.ignored.Add(v.Path)
		return nil
	}
	d.options.Diagnostics = true
	return v.Fields(func(key string, v jsontext.Field) *apierror.Error {
		switch {
		case key != "previous_message_id":
			d.ignored.Add(v.Path)
		case v.Type != gjson.Null:
			id, err := v.ShortText()
			d.input.Replies.Compared = strings.Clone(id)
			return err
		}
		return nil
	})
}
