package read

import (
	"cmp"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// configuration is what configuration_update items set for the responses after them.
type configuration struct {
	efforts turn.EffortUpdates

	// The last format, as JSON, and the path of its item; "": none is set.
	format, path string
}

// with is the configuration after later updates.
func (c configuration) with(later configuration) configuration {
	next := configuration{c.efforts.With(later.efforts), c.format, c.path}
	if later.format != "" {
		next.format, next.path = later.format, later.path
	}
	return next
}

// addConfiguration notes what the item sets.
func (r *itemReader) addConfiguration(it item.Item) *apierror.Error {
	config := &r.state.config

	effort := jsontext.Field{Result: it.At.Get("reasoning.effort"), Path: it.At.Path + ".reasoning.effort"}
	sets := effort.Exists() && effort.Type != gjson.Null
	if sets {
		if err := fields.ReadEffortUpdate(&config.efforts, effort); err != nil {
			return err
		}
	}

	if format := it.At.Get("text.format"); format.IsObject() {
		config.format, config.path, sets = strings.Clone(format.Raw), it.At.Path+".text.format", true
	}

	if !sets {
		r.ignore(it.Kind)
	}
	return nil
}

// configure applies what the items have set. It precedes the fields of the request:
// clients send such an item so that the fields can stay as they were.
func (d *decoder) configure() *apierror.Error {
	c := &d.items.state.config
	d.fields.echo.reasoning.effort = cmp.Or(c.efforts.Last(), d.fields.echo.reasoning.effort)
	if c.format == "" {
		return nil
	}

	// The request may have one format only, and its own has been set: the item's takes the place.
	d.fields.input.Format, d.fields.echo.format = nil, newEcho().format

	return d.fields.readTextFormat(jsontext.Field{Result: gjson.Parse(c.format), Path: c.path})
}
