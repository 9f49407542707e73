package engine

import (
	"strings"
	"testing"
)

func TestModelInfo(t *testing.T) {
	info := func(d *grpcDialect, id, path string, context int64) []byte {
		var m message
		m.text(d.info.id, id)
		if d.info.path != 0 {
			m.text(d.info.path, path)
		}
		m.integer(d.info.context, context)
		m.text(15, "GptOssForCausalLM")
		return frame(m.b)
	}
	ended := func(status string) func(string) string {
		return func(name string) string { return map[string]string{"grpc-status": status}[name] }
	}
	for _, d := range grpcDialects {
		if w := d.EncodeModelInfo(); !strings.HasSuffix(w.Path, "/GetModelInfo") || string(w.Body) != "\x00\x00\x00\x00\x00" {
			t.Errorf("%s asks %s %q", d.kind, w.Path, w.Body)
		}
		if m, err := d.ReadModelInfo(info(d, "gpt-oss", "/models/x", 1000), ended("0")); err != nil || m != (Model{"gpt-oss", 1000}) {
			t.Errorf("%s: %+v, %v", d.kind, m, err)
		}
		if m, err := d.ReadModelInfo(info(d, "", "/models/x", -1), ended("0")); d.info.path != 0 && (err != nil || m != (Model{"/models/x", 0})) {
			t.Errorf("%s, without a name and a length: %+v, %v", d.kind, m, err)
		}
		for name, body := range map[string][]byte{
			"nothing": nil, "html": []byte("<html>"), "cut": info(d, "gpt-oss", "", 1)[:9], "more": append(info(d, "gpt-oss", "", 1), 0),
			"no protobuf": frame([]byte{0x0f}), "an empty message": frame(nil),
		} {
			if m, err := d.ReadModelInfo(body, ended("0")); err == nil || err.Status != 502 {
				t.Errorf("%s, %s: %+v, %v", d.kind, name, m, err)
			}
		}
		if m, err := d.ReadModelInfo(nil, ended("14")); err == nil || err.Status != 503 {
			t.Errorf("%s, unavailable: %+v, %v", d.kind, m, err)
		}
	}
}

// The context length is the smallest length that an engine reports. SGLang has the size of its
// cache in the place of the first.
func TestSmallestLength(t *testing.T) {
	for _, c := range []struct {
		context, input int64
		want           int
	}{{65536, 8186, 8186}, {8186, 65536, 8186}, {65536, 0, 65536}, {0, 8186, 8186}, {-1, 8186, 8186}, {65536, -1, 65536}, {0, 0, 0}} {
		var m message
		m.text(6, "gpt-oss")
		m.integer(14, c.input)
		m.integer(7, c.context)
		got, err := sglangGRPC.ReadModelInfo(frame(m.b), func(string) string { return "0" })
		if err != nil || got.ContextLength != c.want {
			t.Errorf("of %d and %d the context length is %d: %v", c.context, c.input, got.ContextLength, err)
		}
	}
}

// TensorRT-LLM reports its longest input where it does not know the context length: 1,024 unless
// it is configured, whatever the model.
func TestSubstitutedLength(t *testing.T) {
	for _, c := range []struct {
		input, context int64
		want           int
	}{{1024, 8192, 8192}, {1024, 1024, 0}, {0, 8192, 8192}, {0, 0, 0}} {
		var m message
		m.text(1, "gpt-oss")
		m.integer(2, c.input)
		m.integer(3, c.context)
		got, err := trtllmGRPC.ReadModelInfo(frame(m.b), func(string) string { return "0" })
		if err != nil || got.ContextLength != c.want {
			t.Errorf("of %d and %d the context length is %d: %v", c.input, c.context, got.ContextLength, err)
		}
	}
}

func FuzzModelInfo(f *testing.F) {
	f.Add(frame([]byte("\x0a\x01x\x18\x05")))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, d := range grpcDialects {
			if m, err := d.ReadModelInfo(body, func(string) string { return "0" }); err == nil && (m.ID == "" || m.ContextLength < 0 || m.ContextLength > maxContext) {
				t.Errorf("%+v", m)
			}
		}
	})
}
