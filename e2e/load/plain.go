package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"
)

// object is a JSON object.
type object = map[string]any

// errShape means that the generated configuration does not look as plain expects.
var errShape = errors.New("the generated bootstrap has another shape than e2e/load/plain.go knows")

// plain makes of the bootstrap that "envoy-harmony envoy-config" writes the one of the
// same Envoy without the filter: the clients' listener with its settings, and one route,
// for every path, to the cluster that the route of Chat Completions has. What only the
// filter needs is left out: the filter itself, its cluster, the loopback and the pacing
// listener.
func plain(generated []byte) ([]byte, error) {
	text, err := yaml.YAMLToJSON(generated)
	if err != nil {
		return nil, fmt.Errorf("read the bootstrap: %w", err)
	}

	// Numbers stay as they are written: as floats, large ones would get an exponent.
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var bootstrap object
	if err := decoder.Decode(&bootstrap); err != nil {
		return nil, fmt.Errorf("read the bootstrap: %w", err)
	}

	resources := at(bootstrap, "static_resources")
	listener := with(resources, "listeners", "traffic_direction", "INBOUND")
	manager := at(listener, "filter_chains", 0, "filters", 0, "typed_config")
	host := at(manager, "route_config", "virtual_hosts", 0)
	if manager == nil || host == nil {
		return nil, errShape
	}

	route := routeOf(host, chatPath)
	cluster := with(resources, "clusters", "name", route["cluster"])
	router := with(manager, "http_filters", "name", "envoy.filters.http.router")
	if cluster == nil || router == nil {
		return nil, errShape
	}

	host["routes"] = []any{object{"match": object{"prefix": "/"}, "route": route}}
	manager["http_filters"] = []any{router}
	resources["listeners"], resources["clusters"] = []any{listener}, []any{cluster}
	return json.Marshal(bootstrap)
}

// at returns the object at a path of keys and indexes; nil if there is none.
func at(from any, path ...any) object {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			o, _ := from.(object)
			from = o[step]
		case int:
			list, _ := from.([]any)
			if step >= len(list) {
				return nil
			}
			from = list[step]
		}
	}
	o, _ := from.(object)
	return o
}

// routeOf returns the action of a virtual host's route for exactly this path.
func routeOf(host object, path string) object {
	routes, _ := host["routes"].([]any)
	for _, r := range routes {
		if match := at(r, "match"); match["path"] == path {
			return at(r, "route")
		}
	}
	return nil
}

// with returns the first object in a list of an object whose member key is value; nil if
// there is none.
func with(o object, list, key string, value any) object {
	all, _ := o[list].([]any)
	for _, each := range all {
		if found := at(each); found != nil && found[key] == value {
			return found
		}
	}
	return nil
}
