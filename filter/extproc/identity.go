package extproc

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// maxIDBytes is the longest request id: in the log, in replies and at engines.
const maxIDBytes = 256

// cutID returns a request id without what is beyond maxIDBytes.
func cutID(id string) string { return id[:min(len(id), maxIDBytes)] }

// checkTenant returns the error for a request that has to say whose it is and does not,
// else nil. Without an endpoint it has to.
func (s *Server) checkTenant(r *clientRequest) *apierror.Error {
	if s.o.Config.TenantHeader == "" || r.tenant != "" || r.endpoint != nil && r.endpoint.Public {
		return nil
	}
	return apierror.New(http.StatusUnauthorized, "tenant_missing", "",
		"The request does not say whose it is: the header %s is missing, or is there more than once.",
		s.o.Config.TenantHeader)
}

// tenantOf returns the tenant that the header names. Of two headers one may be the
// client's, where Envoy's authentication adds its own without removing others: then
// there is no tenant.
func tenantOf(h *corev3.HeaderMap, header string) string {
	n := 0
	for _, field := range h.GetHeaders() {
		if strings.EqualFold(field.GetKey(), header) {
			n++
		}
	}
	if n > 1 {
		return ""
	}
	return headerOf(h, header)
}

// keyOf returns a digest of the credentials of a request, by which token quotas know its
// client; "" if there are none. The header is the one that Envoy has authenticated; "": it is
// not known which one that is.
//
// Two different credentials are none. One of them nobody has checked: if it counted, a client
// could have a new quota with each request.
func keyOf(h *corev3.HeaderMap, header string) string {
	credentials := ""
	for _, field := range h.GetHeaders() {
		if !hasCredentials(field.GetKey(), header) {
			continue
		}
		c := canonical(valueOf(field))
		if c == "" {
			continue
		}
		if credentials != "" && credentials != c {
			return ""
		}
		credentials = c
	}
	if credentials == "" {
		return ""
	}

	// The digest is kept in the store and in memory, where the credentials must not be.
	sum := sha256.Sum256([]byte(credentials))
	return hex.EncodeToString(sum[:keyBytes])
}

// hasCredentials reports whether a request header is one that credentials are read of.
func hasCredentials(name, header string) bool {
	if header != "" {
		return strings.EqualFold(name, header)
	}
	return strings.EqualFold(name, "authorization") || strings.EqualFold(name, "x-api-key")
}

// canonical returns the one spelling of credentials: a key is the same with and without the
// scheme Bearer, schemes have no case, and more white space says nothing more.
func canonical(credentials string) string {
	words := strings.Fields(credentials)
	if len(words) > 0 && strings.EqualFold(words[0], "bearer") {
		words = words[1:]
	} else if len(words) > 1 {
		words[0] = strings.ToLower(words[0])
	}
	return strings.Join(words, " ")
}

// keyBytes is the length of the digest: different credentials have different ones.
const keyBytes = 16

// attributes is the name under which Envoy sends a filter's request_attributes.
const attributes = "envoy.filters.http.ext_proc"

// party returns whose the bytes of a request are: the tenant's, or, without tenants,
// those of the client's address, if Envoy sends it; else "". Networks of IPv6 count
// as one address. All clients of a Unix socket have the same address, which says nothing.
func (s *Server) party(tenant string, m *extprocv3.ProcessingRequest) string {
	if s.o.Config.TenantHeader != "" {
		return tenant
	}

	address := m.GetAttributes()[attributes].GetFields()["source.address"].GetStringValue()
	if address == "" {
		return ""
	}
	pair, err := netip.ParseAddrPort(address)
	client := pair.Addr()
	if err != nil { // agentgateway sends no port
		if client, err = netip.ParseAddr(address); err != nil {
			return ""
		}
	}

	client = client.Unmap().WithZone("")
	// A client of IPv6 has a network, with more addresses than requests that it could send.
	if network, err := client.Prefix(64); err == nil && client.Is6() {
		return network.String()
	}
	return client.String()
}
