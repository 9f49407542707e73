package h2

import (
	"encoding/binary"
	"fmt"
)

// Frames of RFC 9113, section 6.
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	framePriority     = 0x2
	frameReset        = 0x3
	frameSettings     = 0x4
	framePush         = 0x5
	framePing         = 0x6
	frameGoAway       = 0x7
	frameWindow       = 0x8
	frameContinuation = 0x9
)

const (
	flagEnd        = 0x1 // END_STREAM; ACK of SETTINGS and PING
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

const (
	settingTableSize  = 0x1
	settingPush       = 0x2
	settingStreams    = 0x3
	settingWindow     = 0x4
	settingFrameSize  = 0x5
	settingHeaderList = 0x6
)

const (
	preface       = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	frameHead     = 9
	maxFrame      = 16 << 10 // of the frames that the peer may send, and of those that are sent
	maxWindow     = 1<<31 - 1
	defaultWindow = 1<<16 - 1
	// headerLimit bounds the fields of an answer, as RFC 9113 counts them.
	headerLimit = 1 << 20
)

// Code is an error code of RFC 9113, section 7.
type Code uint32

// The codes that are used here.
const (
	CodeNone        Code = 0x0
	CodeProtocol    Code = 0x1
	CodeFlowControl Code = 0x3
	CodeFrameSize   Code = 0x6
	CodeRefused     Code = 0x7
	CodeCancel      Code = 0x8
	CodeCompression Code = 0x9
	CodeCalm        Code = 0xb
)

// StreamError is the end of one request by the peer, or because of its answer.
type StreamError struct {
	Code Code
	text string
}

func (e *StreamError) Error() string {
	return fmt.Sprintf("HTTP/2 stream error %d: %s", e.Code, e.text)
}

// ConnectionError is the end of a connection because of what the peer has sent.
type ConnectionError struct {
	Code Code
	text string
}

func (e *ConnectionError) Error() string {
	return fmt.Sprintf("HTTP/2 connection error %d: %s", e.Code, e.text)
}

// frame is a frame in the read buffer.
type frame struct {
	kind, flags byte
	stream      uint32
	payload     []byte
}

// next cuts the first frame off p. n is 0 while it is not complete.
func nextFrame(p []byte) (f frame, n int, err error) {
	if len(p) < frameHead {
		return f, 0, nil
	}
	size := int(p[0])<<16 | int(p[1])<<8 | int(p[2])
	if size > maxFrame {
		return f, 0, &ConnectionError{CodeFrameSize, fmt.Sprintf("a frame of %d bytes", size)}
	}
	if len(p) < frameHead+size {
		return f, 0, nil
	}
	f = frame{
		kind:    p[3],
		flags:   p[4],
		stream:  binary.BigEndian.Uint32(p[5:]) & maxWindow,
		payload: p[frameHead : frameHead+size],
	}
	return f, frameHead + size, nil
}

// unpad removes the padding of DATA and HEADERS.
func (f *frame) unpad() error {
	if f.flags&flagPadded == 0 {
		return nil
	}
	if len(f.payload) == 0 || int(f.payload[0]) >= len(f.payload) {
		return &ConnectionError{CodeProtocol, "more padding than frame"}
	}
	f.payload = f.payload[1 : len(f.payload)-int(f.payload[0])]
	return nil
}

func appendHead(out []byte, size int, kind, flags byte, stream uint32) []byte {
	out = append(out, byte(size>>16), byte(size>>8), byte(size), kind, flags) //nolint:gosec // size is at most maxFrame
	return binary.BigEndian.AppendUint32(out, stream)
}

func appendWord(out []byte, kind byte, stream, word uint32) []byte {
	return binary.BigEndian.AppendUint32(appendHead(out, 4, kind, 0, stream), word)
}

func appendSetting(out []byte, name uint16, value uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(out, name), value)
}

func appendGoAway(out []byte, code Code) []byte {
	out = appendHead(out, 8, frameGoAway, 0, 0)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(out, 0), uint32(code))
}

// appendFields appends a block of fields as HEADERS and CONTINUATION.
func appendFields(out []byte, stream uint32, block []byte, end bool) []byte {
	kind, flags := byte(frameHeaders), byte(0)
	if end {
		flags = flagEnd
	}
	for {
		n := min(len(block), maxFrame)
		if n == len(block) {
			flags |= flagEndHeaders
		}
		out = append(appendHead(out, n, kind, flags, stream), block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return out
		}
		kind, flags = frameContinuation, 0
	}
}
