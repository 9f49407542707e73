// Package pki makes certificates for tests.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA is a certificate authority.
type CA struct {
	// PEM is its certificate.
	PEM []byte
	is  *x509.Certificate
	key *ecdsa.PrivateKey
}

// Pair is a certificate and its private key, as PEM.
type Pair struct{ Cert, Key []byte }

// NewCA makes a CA with its own key.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-48 * time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey(t)
	ca := &CA{is: template, key: key}
	der := ca.create(t, template, key)
	ca.PEM = toPEM("CERTIFICATE", der)
	var err error
	// The template has no key id, by which certificates name their issuer.
	if ca.is, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return ca
}

// Sign makes a certificate for DNS names and IP addresses, valid until a time.
func (ca *CA) Sign(t testing.TB, notAfter time.Time, hosts ...string) Pair {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: notAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		// TLS looks for an address among the addresses only, and for a name among the names.
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	key := newKey(t)
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{Cert: toPEM("CERTIFICATE", ca.create(t, template, key)), Key: toPEM("PRIVATE KEY", text)}
}

// Leaf makes a certificate that is valid for a day.
func (ca *CA) Leaf(t testing.TB, hosts ...string) Pair {
	t.Helper()
	return ca.Sign(t, time.Now().Add(24*time.Hour), hosts...)
}

func (ca *CA) create(t testing.TB, template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	// Two certificates of an issuer with one serial number are refused by some clients.
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, ca.is, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func toPEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// Write writes files into a folder: each name is followed by its contents.
func Write(t testing.TB, folder string, files map[string][]byte) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Secret writes files into a folder as Kubernetes mounts a Secret: each name is a
// link into a folder of one version, and all change at once.
func Secret(t testing.TB, folder string, files map[string][]byte) {
	t.Helper()
	version, err := os.MkdirTemp(folder, "..")
	if err != nil {
		t.Fatal(err)
	}
	Write(t, version, files)
	// A link is replaced by a rename, which is atomic: nobody reads a certificate with another's key.
	next := filepath.Join(folder, "..data_tmp")
	if err := os.Symlink(filepath.Base(version), next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(folder, "..data")); err != nil {
		t.Fatal(err)
	}
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(folder, name)); err != nil &&
			!os.IsExist(err) {
			t.Fatal(err)
		}
	}
}
