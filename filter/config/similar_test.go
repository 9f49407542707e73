package config

import "testing"

func TestDidYouMean(t *testing.T) {
	names := []string{"listen", "engines", "urls", "max_body_bytes", "call_timeout", "date", "admin"}
	for word, want := range map[string]string{
		"lissten": "listen", "lsiten": "listen", "engine": "engines", "url": "urls", "max_bodybytes": "max_body_bytes",
		"timeout": "call_timeout", "dat": "date", "dtae": "date",
		"nope": "", "": "", "x": "", "models": "", "da": "",
	} {
		if want != "" {
			want = "; did you mean " + want + "?"
		}
		if got := DidYouMean(word, names); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"ab", "", 2}, {"ab", "ba", 1}, {"abc", "adc", 1}, {"abc", "ac", 1}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%s, %s: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
