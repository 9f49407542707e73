package config

import (
	"encoding/base64"
	"errors"
)

// SealKeyBytes is the length of a key of responses.seal_keys.
const SealKeyBytes = 32

// Keys returns the seal keys as bytes. An error names the keys at fault and
// shows none of them.
func (r *Responses) Keys() ([][]byte, error) {
	keys := make([][]byte, len(r.SealKeys))

	var errs faults
	for i, text := range r.SealKeys {
		var err error
		if keys[i], err = base64.StdEncoding.DecodeString(text); err != nil || len(keys[i]) != SealKeyBytes {
			errs.add(
				"responses.seal_keys[%d]: write %d random bytes in base64, as openssl rand -base64 %[2]d prints "+
					"them", i, SealKeyBytes)
		}
	}
	return keys, errors.Join(errs...)
}
