package seal_test

import (
	"bytes"
	"crypto/rand"
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/seal"
)

func ExampleSealer() {
	sealer, err := seal.NewSealer([][]byte{bytes.Repeat([]byte("k"), seal.KeyBytes)}, rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	sealed, err := sealer.Seal(seal.Reasoning, "tenant-a", []byte("a thought"))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := sealer.Open(seal.Reasoning, "tenant-a", sealed)
	fmt.Println(string(text), err)
	_, err = sealer.Open(seal.Reasoning, "tenant-b", sealed)
	fmt.Println(err)
	// Output:
	// a thought <nil>
	// sealed for another tenant
}
