package extproc

import "github.com/envoy-harmony/envoy-harmony/filter/engine"

// upstreamPhase is how much of the upstream's reply has come. Where the reply is a
// local one there is no upstream, but Envoy may answer by itself.
type upstreamPhase uint8

const (
	upstreamSilent   upstreamPhase = iota
	upstreamHeaders                // its headers have come
	upstreamBody                   // its body has begun
	upstreamTrailers               // it ends with trailers
)

// downstream is how Envoy gets the reply to the client, which knows nothing of what the reply is:
//
//	the reply       Envoy sends upstream         headers                      body
//	local           nothing                      of a streamed local reply    of it
//	paced           the request for marks        in place of the service's    in place of the service's
//	the upstream's  the model call               in place of the engine's     in place of the engine's, from
//	                                                                          its first piece on
//
// A reply that is an error or a small object is one message, and takes none of these.
type downstream struct {
	to       sender        // messages to Envoy
	upstream upstreamPhase // whose reply it takes the place of
	pace     pacer
	metadata metadata

	local       bool // Envoy sends no request upstream: the reply is a local one
	headersSent bool
	early       []byte // of a reply in place of the upstream's, whose body has not begun
}

// inPlace reports whether the reply takes the place of the engine's.
func (d *downstream) inPlace() bool { return !d.local && !d.pace.on() }

// headers sends the headers of the reply.
func (d *downstream) headers(header []engine.Header) {
	d.headersSent = true
	if d.local {
		m := localHeaders(header)
		d.metadata.begin(m)
		d.to.add(m)
		return
	}
	var m mutation
	m.set(header...)
	m.m.RemoveHeaders = engineReplyNames
	d.to.add(responseHeadersReply(&m))
}

// body sends bytes of the reply that are not its last, and reports whether they were sent.
func (d *downstream) body(p []byte) bool {
	// Envoy ends a request for which a body comes in place of one that has not begun.
	// Engines send headers long before their first token.
	if d.upstream == upstreamHeaders && d.inPlace() {
		d.early = append(d.early, p...)
		return false
	}
	d.write(d.withEarly(p), false)
	return true
}

// lastBody sends the last bytes of the reply, and its end.
func (d *downstream) lastBody(p []byte) {
	p = d.withEarly(p)
	if d.upstream != upstreamTrailers || d.local {
		d.write(p, true)
		return
	}

	// Envoy waits for an answer to the trailers, which ends the reply.
	d.to.responseBody(p, false)
	d.to.add(responseTrailersReply(trailerNames...))
}

// withEarly returns bytes behind those that could not be sent before.
func (d *downstream) withEarly(p []byte) []byte {
	if len(d.early) > 0 {
		p, d.early = append(d.early, p...), nil
	}
	return p
}

func (d *downstream) write(p []byte, end bool) {
	if d.local {
		d.to.localBody(p, end)
		return
	}
	d.to.responseBody(p, end)
	d.pace.sent += len(p)
}
