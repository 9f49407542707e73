package enginesim

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// This file is what SGLang does with the ids of requests.

// errAborted is the cause of the end of a request that was aborted by its id.
var errAborted = errors.New("aborted")

// A request that waits for its grammar is aborted with a status, and these words.
const (
	abortedInQueue = "abort400"
	abortedByID    = "Aborted by AbortReq."
)

// noticing is how long it takes until SGLang aborts a request whose client has left: from
// some milliseconds to seconds.
const noticing = 200 * time.Millisecond

// abortable are the requests that can be aborted by their id: those that wait or run, and
// those whose client has left unnoticed.
type abortable struct {
	mu     sync.Mutex
	aborts map[string]context.CancelCauseFunc // by request id
}

// register adds a request. It reports whether its id is free: an abort could not tell two
// requests apart.
func (a *abortable) register(id string, abort context.CancelCauseFunc) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, taken := a.aborts[id]; taken {
		return false
	}
	a.aborts[id] = abort
	return true
}

// unregister removes a request that has ended.
func (a *abortable) unregister(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.aborts, id)
}

// abort aborts a request, and with it every other one whose id begins with its id, as SGLang
// does: those that wait, and those that run. An id of no request aborts nothing.
func (a *abortable) abort(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.aborts[id]; !known {
		return
	}
	a.abortAllLocked(id)
}

// abortAll aborts all requests.
func (a *abortable) abortAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.abortAllLocked("")
}

func (a *abortable) abortAllLocked(prefix string) {
	for id, abort := range a.aborts {
		if strings.HasPrefix(id, prefix) {
			abort(errAborted)
		}
	}
}

// abortLater aborts a request when SGLang has noticed that its client is gone. then is done
// after that; it may be nil.
func (a *abortable) abortLater(id string, then func()) {
	time.AfterFunc(noticing, func() {
		a.abort(id)
		if then != nil {
			then()
		}
	})
}

// ended takes the end of a request. Where its client has left, SGLang has not noticed yet.
func (a *abortable) ended(id string, left bool) {
	if !left {
		a.unregister(id)
		return
	}
	a.abortLater(id, func() { a.unregister(id) })
}

// serveAbort is SGLang's POST /abort_request.
func (a *abortable) serveAbort(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ID  string `json:"rid"`
		All bool   `json:"abort_all"`
	}
	text, _ := io.ReadAll(io.LimitReader(r.Body, 1<<16)) // a body that is cut is no JSON
	if json.Unmarshal(text, &body) != nil {
		writeJSON(w, http.StatusBadRequest, appendError(nil, bodyFault(text)))
		return
	}
	if body.All {
		a.abortAll()
	} else {
		a.abort(body.ID)
	}
	w.WriteHeader(http.StatusOK)
}
