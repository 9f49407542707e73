package constraint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// TestNumbersAreExact compares numbers that no reader of 64 bits could tell apart, in all
// keywords that compare.
func TestNumbersAreExact(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("7", 2000)
	const far = "100000000000000000000000000000" // an exponent beyond 64 bits

	for _, c := range []struct {
		schema, text string
		want         bool
	}{
		{`{"uniqueItems":true}`, `[1e-1000,2e-1000]`, true},
		{`{"uniqueItems":true}`, `[1e-1000,0.1e-999]`, false},
		{`{"uniqueItems":true}`, `[1e-5000,2e-5000,0]`, true},
		{`{"uniqueItems":true}`, `[1e1000000,1e1000001]`, true},
		{`{"uniqueItems":true}`, `[1e1000000,-1e1000000]`, true},
		{`{"uniqueItems":true}`, `[1e1000000,100E+999998]`, false},
		{`{"uniqueItems":true}`, `[1e` + far + `,2e` + far + `]`, true},
		{`{"uniqueItems":true}`, `[1e` + far + `,0.01e` + far[:len(far)-1] + `2]`, false},
		{`{"uniqueItems":true}`, `[1e-` + far + `,1e` + far + `]`, true},
		{`{"uniqueItems":true}`, `[0,-0.00e7]`, false},
		{`{"uniqueItems":true}`, `[5,5.0]`, false},
		{`{"uniqueItems":true}`, `[` + long + `,` + long + `1]`, true},
		{`{"uniqueItems":true}`, `[` + long + `.5,` + long + `.50]`, false},
		{`{"uniqueItems":true}`, `[0.` + long + `,0.` + long + `8]`, true},

		{`{"const":1e-2000}`, `0`, false},
		{`{"const":1e-2000}`, `1000e-2003`, true},
		{`{"enum":[1e2000,1e3000]}`, `1e4000`, false},
		{`{"enum":[1e2000,1e3000]}`, `1e3000`, true},
		{`{"enum":[` + long + `]}`, long[1:] + `8`, false},
		{`{"enum":[` + long + `]}`, long + `.0`, true},

		{`{"exclusiveMinimum":0}`, `1e-9999999999999999999999`, true},
		{`{"exclusiveMaximum":0}`, `-1e-9999999999999999999999`, true},
		{`{"minimum":` + long[:300] + `}`, long[:300], true},
		{`{"exclusiveMinimum":` + long[:300] + `}`, long[:300] + ".1", true},
		{`{"exclusiveMinimum":1e300}`, `1.` + strings.Repeat("0", 1500) + `1e300`, true},
		{`{"maximum":-2}`, `-1e` + far, true},
		{`{"maximum":-2}`, `1e` + far, false},

		{`{"type":"integer"}`, `1e1000000`, true},
		{`{"type":"integer"}`, `1e-1000000`, false},
		{`{"type":"integer"}`, `0e-1000000`, true},
		{`{"type":"integer"}`, long + `.0`, true},
		{`{"type":"integer"}`, long + `.1`, false},

		{`{"multipleOf":3}`, `1e1000000`, false},
		{`{"multipleOf":3}`, `9e1000000`, true},
		{`{"multipleOf":64}`, `1e` + far, true},
		{`{"multipleOf":0.01}`, `-1e` + far, true},
		{`{"multipleOf":0.01}`, `1e-` + far, false},
		{`{"multipleOf":7}`, long, true},
		{`{"multipleOf":7}`, long + `1`, false},
		{`{"multipleOf":1e-300}`, `1.5e-299`, true},
		{`{"multipleOf":1e-300}`, `1.5e-300`, false},
		{`{"multipleOf":` + long[:300] + `}`, long[:300] + `00`, true},
		{`{"multipleOf":` + long[:300] + `}`, long[:301] + `0`, false},
		{`{"multipleOf":2.5}`, `0`, true},
	} {
		v, err := NewValidator(newAccount(), json.RawMessage(c.schema), nil)
		if err != nil {
			t.Errorf("%.80s: %v", c.schema, err)
			continue
		}
		if got := follows(v, []byte(c.text)); got != c.want {
			t.Errorf("%.80s of %.80s: %t", c.text, c.schema, got)
		}
	}
}

// TestDecimals compares random numbers, and asks for multiples, as package big does.
func TestDecimals(t *testing.T) {
	t.Parallel()
	source := rand.New(rand.NewPCG(1, 2))
	digits := func(most int) string {
		var b strings.Builder
		for range source.IntN(most + 1) {
			b.WriteByte("0012359"[source.IntN(7)])
		}
		return b.String()
	}
	random := func() json.Number {
		n := "0"
		if s := strings.TrimLeft(digits(25), "0"); s != "" {
			n = s
		}
		if s := digits(25); s != "" {
			n += "." + s
		}
		if source.IntN(2) == 0 {
			n += fmt.Sprintf("e%+d", source.IntN(60)-30)
		}
		if source.IntN(3) == 0 {
			n = "-" + n
		}
		return json.Number(n)
	}

	for range 20_000 {
		a, b := random(), random()
		x, _ := new(big.Rat).SetString(string(a))
		y, _ := new(big.Rat).SetString(string(b))
		// Half of the pairs are equal, or a multiple.
		if factor := source.Int64N(4); factor > 0 && source.IntN(2) == 0 {
			x = new(big.Rat).Mul(y, big.NewRat(factor, 1))
			a = json.Number(x.FloatString(60))
		}

		m := meter{account: newAccount()}
		if got, want := compareNumbers(a, b), x.Cmp(y); got != want {
			t.Fatalf("%s and %s: %d, want %d", a, b, got, want)
		}
		if got, want := string(m.appendKey(nil, a)) == string(m.appendKey(nil, b)), x.Cmp(y) == 0; got != want {
			t.Fatalf("the keys of %s and %s are equal: %t", a, b, got)
		}
		if got, want := isWhole(a), x.IsInt(); got != want {
			t.Fatalf("%s is whole: %t", a, got)
		}
		if y.Sign() > 0 {
			if got, want := m.isMultiple(a, b), new(big.Rat).Quo(x, y).IsInt(); got != want {
				t.Fatalf("%s is a multiple of %s: %t", a, b, got)
			}
		}
	}
}

// TestStepsOfNumbers shows that the steps bound what comparing numbers allocates, and that
// what would take more than a request may is refused. With -v it prints how long a step takes.
func TestStepsOfNumbers(t *testing.T) {
	list := func(n int, number func(i int) string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = number(i)
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	long := strings.Repeat("7", 1_000_000)

	for name, c := range map[string]struct {
		schema, text string
		refused      bool
	}{
		"small":              {`{"uniqueItems":true}`, list(100_000, func(i int) string { return fmt.Sprintf("%de-1000", i) }), false},
		"large":              {`{"uniqueItems":true}`, list(100_000, func(i int) string { return fmt.Sprintf("1e%d", 1_000_000+i) }), false},
		"long":               {`{"uniqueItems":true}`, list(100, func(i int) string { return fmt.Sprintf("%s%d", long[:10_000], i) }), false},
		"one long":           {`{"uniqueItems":true}`, "[" + long + ",1]", false},
		"exponents":          {`{"uniqueItems":true}`, list(10_000, func(i int) string { return fmt.Sprintf("1e%d%s", 1+i, long[:30]) }), false},
		"a long exponent":    {`{"uniqueItems":true}`, "[1e" + long + "]", true},
		"an enum":            {`{"items":{"enum":` + list(1000, func(i int) string { return fmt.Sprintf("%de-1000", i) }) + `}}`, list(400, func(int) string { return "999e-1000" }), false},
		"multiples":          {`{"items":{"multipleOf":1e-300}}`, list(10_000, func(i int) string { return fmt.Sprintf("%de1000000", i) }), false},
		"a long multiple":    {`{"multipleOf":0.7}`, long, false},
		"of a long number":   {`{"multipleOf":` + long[:300] + `}`, long, false},
		"of a longer number": {`{"items":{"multipleOf":` + long[:9000] + `e-8999}}`, list(1000, func(i int) string { return fmt.Sprintf("%se%d", long[:9000], i) }), true},
	} {
		v, err := NewValidator(work.New(t.Context(), work.PerRequest), json.RawMessage(c.schema), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}

		var steps int
		begun := time.Now()
		bytes := allocated(func() {
			steps, err = stepsOf(func(account *work.Account) error {
				_, err := v.Accepts(account, []byte(c.text))
				return err
			})
		})
		t.Logf("%-20s %9d steps of %4.0f ns, %9d bytes, %v", name, steps, float64(time.Since(begun))/float64(steps), bytes, err)
		if errors.Is(err, work.ErrExceeded) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
		if bytes > 64<<10+64*uint64(steps) {
			t.Errorf("%s: %d bytes are allocated for %d steps", name, bytes, steps)
		}
	}
}
