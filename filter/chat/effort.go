package chat

import (
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/fields"
)

// Chat has no form of its own for an effort that changes in mid-conversation. Clients that go from
// one API to another keep the forms of OpenAI's Responses and of Anthropic's Messages.

// readUpdate reads {"type":"configuration_update","reasoning":{"effort":…}}.
func (d *decoder) readUpdate(m message) *apierror.Error {
	if err := updateFields.Others(m.at, &d.ignored); err != nil {
		return err
	}
	if err := updateReasoningFields.Others(m.settings, &d.ignored); err != nil {
		return err
	}

	effort := jsontext.Field{Result: m.settings.Get("effort"), Path: m.settings.Path + ".effort"}
	if !effort.Exists() || effort.Type == gjson.Null {
		d.ignored.Add(m.at.Path)
		return nil
	}
	return fields.ReadEffortUpdate(&d.input.EffortUpdates, effort)
}

// readConfig reads {"effort":…} of a message of the system.
func (d *decoder) readConfig(m *message) *apierror.Error {
	if m.role != "system" && m.role != "developer" {
		return apierror.Invalid(m.config.Path, "Only messages of the roles system and developer may have this field.")
	}

	return m.config.Fields(func(key string, v jsontext.Field) *apierror.Error {
		if key != "effort" {
			return configFields.Other(key, v, &d.ignored)
		}
		m.configured = true
		return fields.ReadEffortUpdate(&d.input.EffortUpdates, v)
	})
}
