#!/usr/bin/env bash
# Makes tokens for docs/gateways/recipes.md, in place of an identity provider:
#
#	token.sh public            prints the public key, a JSON Web Key Set
#	token.sh TENANT [DAYS]     prints a token of a tenant, for 90 days
#
# The private key is the file issuer.key of the current folder, made if there is none.
set -euo pipefail

if [ ! -e issuer.key ]; then
	(umask 077 && openssl genrsa -out issuer.key 2048 2>/dev/null)
fi

base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }

if [ "$1" = public ]; then
	modulus=$(openssl rsa -in issuer.key -noout -modulus | cut -d= -f2 | sed 's/../\\x&/g')
	printf '{"keys":[{"kty":"RSA","alg":"RS256","e":"AQAB","n":"%s"}]}\n' "$(printf '%b' "$modulus" | base64url)"
	exit
fi

tenant=$1 days=${2:-90}
claims=$(printf '{"iss":"https://keys.example.com","aud":"models","sub":"%s","tenant":"%s","exp":%d}' \
	"$tenant" "$tenant" $(($(date +%s) + days * 86400)))
text=$(printf '{"alg":"RS256","typ":"JWT"}' | base64url).$(printf '%s' "$claims" | base64url)
printf '%s.%s\n' "$text" "$(printf '%s' "$text" | openssl dgst -sha256 -sign issuer.key | base64url)"
