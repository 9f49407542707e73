package main

// The root certificates of Mozilla, for systems without any, such as the image. A
// system's own roots, and those of SSL_CERT_FILE or SSL_CERT_DIR, replace them.
import _ "golang.org/x/crypto/x509roots/fallback"
