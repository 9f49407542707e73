package extproc

import (
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	aidatav3 "github.com/envoyproxy/go-control-plane/envoy/data/ai/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/telemetry"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// FuzzMetadata makes metadata of arbitrary names and numbers: a message with them can
// always be sent, and Envoy reads the same.
func FuzzMetadata(f *testing.F) {
	f.Add("gpt-oss-20b", "main", "stop", 3, -1, int64(5))
	f.Add("\xff\x00\xed\xa0\xbd", "", "\xc3", -1<<63, 1<<62, int64(-1))
	f.Fuzz(func(t *testing.T, model, engineName, finish string, n, cached int, first int64) {
		fields := metadataFields{}
		fields.names("messages", model, engineName)
		report := telemetry.Report{
			Outcome: finish, Status: n, Answered: true, Retries: n, FirstToken: time.Duration(first),
			Summary: turn.Summary{Prompt: n, Cached: cached, Counts: turn.Counts{Output: n, Reasoning: cached}, Finish: turn.Finish(finish), Repairs: map[string]int{"a": n}},
		}
		fields.reply(&report)
		var m extprocv3.ProcessingResponse
		usage := tokenUsage("messages", model, &report)
		fields.addTo(&m, usage)
		wire, err := proto.Marshal(&m)
		if err != nil {
			t.Fatal(err)
		}
		var read extprocv3.ProcessingResponse
		if err := proto.Unmarshal(wire, &read); err != nil {
			t.Fatal(err)
		}
		got := read.GetDynamicMetadata().GetFields()[header.MetadataNamespace].GetStructValue().GetFields()
		want := 12
		for _, known := range []bool{first > 0, cached != engine.Unknown, finish != ""} {
			if known {
				want++
			}
		}
		if len(got) != want || got["model"].GetStringValue() != strings.ToValidUTF8(model, "\ufffd") || got["status"].GetNumberValue() != float64(n) {
			t.Errorf("Envoy reads %v, and not %d fields", got, want)
		}
		if unknown := read.ProtoReflect().GetUnknown(); len(unknown) > 0 {
			t.Errorf("Envoy does not know %q", unknown)
		}
		var counted aidatav3.TokenUsage
		err = read.GetTypedDynamicMetadata()[header.TokenUsageNamespace].UnmarshalTo(&counted)
		if err != nil || !utf8.ValidString(counted.GetModel()) || !proto.Equal(usage, &counted) {
			t.Errorf("Envoy reads %v of %v, %v", &counted, usage, err)
		}
	})
}

// FuzzParty reads arbitrary attributes of Envoy. The party of a client is bounded, the
// same for all ports, and the network of an IPv6 address.
func FuzzParty(f *testing.F) {
	for _, seed := range []string{"1.2.3.4:5", "[2001:db8::1]:443", "[::ffff:1.2.3.4]:5", "[fe80::1%eth0]:1", "unix:///a", "", "\xff", "1.2.3.4"} {
		f.Add(seed, uint16(7))
	}
	s := &Server{o: Options{Config: config.Defaults()}}
	party := func(address string) string {
		return s.party("", &extprocv3.ProcessingRequest{Attributes: map[string]*structpb.Struct{
			attributes: {Fields: map[string]*structpb.Value{"source.address": structpb.NewStringValue(address)}},
		}})
	}
	f.Fuzz(func(t *testing.T, address string, port uint16) {
		got := party(address)
		if len(got) > max(len(address), 64) {
			t.Errorf("%q is the party %q", address, got)
		}
		from, err := netip.ParseAddrPort(address)
		if err != nil {
			return
		}
		if other := party(netip.AddrPortFrom(from.Addr(), port).String()); other != got {
			t.Errorf("%q is the party %q, and at port %d %q", address, got, port, other)
		}
		if ip := from.Addr().Unmap(); ip.Is6() {
			network, err := netip.ParsePrefix(got)
			if err != nil || network.Bits() != 64 || !network.Contains(ip.WithZone("")) {
				t.Errorf("%q is the party %q", address, got)
			}
		}
	})
}
