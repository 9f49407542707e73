package extproc

import (
	"cmp"
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
	return apierror.New(http.StatusUnauthorized, "tenant_missing", "", "The request does not say whose it is: the header %s is missing, or is there more than once.", s.o.Config.TenantHeader)
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

// keyOf returns a digest of the credentials of a request, by which token budgets know its
// client; "" if there are none.
func keyOf(h *corev3.HeaderMap) string {
	credentials := cmp.Or(headerOf(h, "authorization"), headerOf(h, "x-api-key"))
	if credentials == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(credentials))
	return hex.EncodeToString(sum[:keyBytes])
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
	if network, err := client.Prefix(64); err == nil && client.Is6() {
		return network.String()
	}
	return client.String()
}
