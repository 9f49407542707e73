package extproc

import "runtime"

// A goroutine begins with a stack of 2 KB. Each time it has to double, all frames on it
// are copied, which takes longer the deeper the calls are: for a short request as long
// as everything that decodes it. The functions here make the stack as large as it will
// become at once, while there is nothing on it. Without use they touch none of it.

// stackToHandle is for handling a request: 16 KB.
//
//go:noinline
func stackToHandle(use bool) {
	if use {
		var frame [9 << 10]byte
		runtime.KeepAlive(&frame)
	}
}

// stackToServe is for serving a stream: 8 KB.
//
//go:noinline
func stackToServe(use bool) {
	if use {
		var frame [5 << 10]byte
		runtime.KeepAlive(&frame)
	}
}
