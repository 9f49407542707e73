package h2

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// quiet is a socket that wakes the process only where it is waited for. The runtime's
// poller is told of every arrival at a socket, also when nobody reads. So this socket
// is not in it: what is there is an epoll descriptor for each direction, in which the
// socket is armed for one event at a time.
type quiet struct {
	fd     int
	file   *os.File // owns fd
	reader *watch
	writer *watch
}

// watch waits for one kind of event of a socket.
type watch struct {
	fd     int    // of the socket
	events uint32 // that are waited for

	epoll int
	file  *os.File // owns epoll
	raw   syscall.RawConn
	ready [1]syscall.EpollEvent
}

func newWatch(fd int, events uint32) (*watch, error) {
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := syscall.SetNonblock(epoll, true); err != nil {
		_ = syscall.Close(epoll)
		return nil, os.NewSyscallError("fcntl", err)
	}
	w := &watch{epoll: epoll, fd: fd, events: events | syscall.EPOLLONESHOT, file: os.NewFile(uintptr(epoll), "epoll")}
	if w.raw, err = w.file.SyscallConn(); err == nil {
		err = os.NewSyscallError(
			"epoll_ctl", syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Fd: int32(fd)}),
		)
	}
	if err != nil {
		_ = w.file.Close()
		return nil, err
	}
	return w, nil
}

// wait waits for the event, or the end of the watch.
func (w *watch) wait() error {
	armed := syscall.EpollEvent{Events: w.events, Fd: int32(w.fd)}
	if err := syscall.EpollCtl(w.epoll, syscall.EPOLL_CTL_MOD, w.fd, &armed); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}

	// The epoll descriptor itself is in the runtime's poller: the goroutine waits for it, and no
	// thread does.
	return w.raw.Read(func(uintptr) bool {
		n, err := syscall.EpollWait(w.epoll, w.ready[:], 0)
		return n > 0 || err != nil && !errors.Is(err, syscall.EINTR)
	})
}

// newQuiet takes over a connection. ok is false for one that is no socket of the
// kernel, such as one with TLS.
func newQuiet(c net.Conn) (s socket, ok bool, err error) {
	filer, ok := c.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, false, nil
	}
	file, err := filer.File()
	if err != nil {
		return nil, false, err
	}
	// The file is a copy, of which the runtime's poller knows nothing.
	_ = c.Close()

	q := &quiet{file: file, fd: int(file.Fd())}
	if err = syscall.SetNonblock(q.fd, true); err == nil {
		if q.reader, err = newWatch(q.fd, syscall.EPOLLIN|syscall.EPOLLRDHUP); err == nil {
			q.writer, err = newWatch(q.fd, syscall.EPOLLOUT)
		}
	}

	if err != nil {
		if q.reader != nil {
			_ = q.reader.file.Close()
		}
		_ = file.Close()
		return nil, false, err
	}
	return q, true, nil
}

// poll reads what is there; 0: nothing.
func (q *quiet) poll(p []byte) (int, error) {
	for {
		n, err := syscall.Read(q.fd, p)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return 0, nil
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

func (q *quiet) wait() error { return q.reader.wait() }

// Write implements io.Writer.
func (q *quiet) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, err := syscall.Write(q.fd, p[done:])
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			if err := q.writer.wait(); err != nil {
				return done, err
			}
		case err != nil:
			return done, os.NewSyscallError("write", err)
		default:
			done += n
		}
	}
	return done, nil
}

// stop ends waiting readers and writers.
func (q *quiet) stop() {
	_ = syscall.Shutdown(q.fd, syscall.SHUT_RDWR)
	_ = q.reader.file.Close()
	_ = q.writer.file.Close()
}

// close closes the socket when nobody uses it any more.
func (q *quiet) close() { _ = q.file.Close() }
