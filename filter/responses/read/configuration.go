package read

import (
	"cmp"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/item"
)

// configuration is what configuration_update items set for the responses after them.
type configuration struct {
	effort, format string // JSON; "": not set
	path           string // of the last of the items
}

// with is the configuration after later updates.
func (c configuration) with(later configuration) configuration {
	return configuration{cmp.Or(later.effort, c.effort), cmp.Or(later.format, c.format), cmp.Or(later.path, c.path)}
}

// addConfiguration notes what the item sets.
func (r *itemReader) addConfiguration(it item.Item) *apierror.Error {
	set := configuration{path: it.At.Path}
	if v := it.At.Get("reasoning.effort"); v.Exists() && v.Type != gjson.Null {
		set.effort = strings.Clone(v.Raw)
	}

	if v := it.At.Get("text.format"); v.IsObject() {
		set.format = strings.Clone(v.Raw)
	}

	if set.effort == "" && set.format == "" {
		r.ignore(it.Kind)
		return nil
	}

	r.state.config = r.state.config.with(set)

	return nil
}

// configure applies what the items have set. It precedes the fields of the request:
// clients send such an item so that the fields can stay as they were.
func (d *decoder) configure() *apierror.Error {
	c := &d.items.state.config
	if c.effort != "" {
		// The item's effort takes the place of the fields', an opt-out among them.
		d.fields.input.OptedOut = false
		if err := d.fields.readEffort(jsontext.Field{
			Result: gjson.Parse(c.effort),
			Path:   c.path + ".reasoning.effort",
		}); err != nil {
			return err
		}
	}

	if c.format == "" {
		return nil
	}

	// The request may have one format only, and its own has been set: the item's takes the place.
	d.fields.input.Format, d.fields.echo.format = nil, newEcho().format

	return d.fields.readTextFormat(jsontext.Field{Result: gjson.Parse(c.format), Path: c.path + ".text.format"})
}
