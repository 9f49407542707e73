//go:build charts

package charts

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// The folder of records is a volume that the filter can write to, in each mode. A claim
// serves one pod at a time.
func TestRecordsVolume(t *testing.T) {
	const limited, claimed = "records: {enabled: true, sizeLimit: 3Gi}\n", "records: {enabled: true, existingClaim: records}\n"
	emptyDir := object{"name": "envoy-harmony-records", "emptyDir": object{"sizeLimit": "3Gi"}}

	for _, tt := range []struct {
		name, values string
		want         object
		bytes        any
		strategy     string
	}{
		{"emptyDir", engine + limited, emptyDir, 1288490188.0, "RollingUpdate"},
		{"emptyDir with the bytes of the values", engine + limited + "config: {record: {folder_bytes: 7}}", emptyDir, 7.0, "RollingUpdate"},
		{"emptyDir beside Envoy", "mode: sidecar\n" + engine + limited, emptyDir, 1288490188.0, "RollingUpdate"},
		{"claim", engine + claimed, object{"name": "envoy-harmony-records", "persistentVolumeClaim": object{"claimName": "records"}}, nil, "Recreate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := objects(t, render(t, tt.values))
			settings := settingsOf(t, all)
			spec := at(find(t, all, "Deployment", "harmony-envoy-harmony"), "spec").(object)
			pod := at(spec, "template.spec").(object)

			if diff := cmp.Diff(tt.want, volumeAt(pod, at(settings, "record.folder").(string))); diff != "" {
				t.Errorf("the volume at record.folder:\n%s", diff)
			}
			if got := at(settings, "record.folder_bytes"); got != tt.bytes {
				t.Errorf("record.folder_bytes is %v, want %v", got, tt.bytes)
			}
			if got := at(spec, "strategy.type"); got != tt.strategy {
				t.Errorf("the strategy is %v, want %s", got, tt.strategy)
			}

			mounts := pod["containers"].([]any)[0].(object)["volumeMounts"].([]any)
			i := slices.IndexFunc(mounts, func(m any) bool { return m.(object)["name"] == "envoy-harmony-records" })
			if i < 0 || mounts[i].(object)["readOnly"] != nil {
				t.Error("there is no mount, or it is read-only")
			}
		})
	}

	all := objects(t, render(t, patched+limited))
	patch := object{}
	if err := yaml.Unmarshal([]byte(at(find(t, all, "ConfigMap", "harmony-envoy-harmony-patch"), "data").(object)["patch.yaml"].(string)), &patch); err != nil {
		t.Fatal(err)
	}

	pod := at(patch, "spec.template.spec").(object)
	if got := mountPath(pod["initContainers"].([]any)[0].(object), "envoy-harmony-records"); got != at(settingsOf(t, all), "record.folder") {
		t.Errorf("the patch mounts the records at %v", got)
	}
}

// The inspector's token is a variable of a Secret, and in no configuration.
func TestInspectorToken(t *testing.T) {
	all := objects(t, render(t, engine+"inspector: {enabled: true, existingSecret: page, existingSecretKey: bearer}\n"))
	if diff := cmp.Diff(object{"enabled": true}, settingsOf(t, all)["inspector"]); diff != "" {
		t.Errorf("the keys inspector.*:\n%s", diff)
	}
	filter := at(find(t, all, "Deployment", "harmony-envoy-harmony"), "spec.template.spec.containers").([]any)[0].(object)
	want := object{"name": "ENVOY_HARMONY_INSPECTOR_TOKEN", "valueFrom": object{"secretKeyRef": object{"name": "page", "key": "bearer"}}}
	memory := object{"name": "GOMEMLIMIT", "value": "1503238553"} // 70 % of the limit
	if diff := cmp.Diff([]any{want, memory}, filter["env"]); diff != "" {
		t.Errorf("the environment:\n%s", diff)
	}
	c := config.Defaults()
	unknown, err := c.ApplyEnv([]string{want["name"].(string) + "=abc"})
	if err != nil || len(unknown) > 0 || c.Inspector.Token != "abc" {
		t.Errorf("the program does not take the token from %s: %v, %v", want["name"], unknown, err)
	}
}

// settingsOf is the filter's configuration.
func settingsOf(t *testing.T, all []object) (settings object) {
	t.Helper()
	text := at(find(t, all, "ConfigMap", "harmony-envoy-harmony"), "data").(object)["config.yaml"].(string)
	if err := yaml.Unmarshal([]byte(text), &settings); err != nil {
		t.Fatal(err)
	}
	return settings
}
