package inspect

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

// Source has the records that a page shows.
type Source interface {
	// Records returns the records of exchanges that have ended, the oldest first.
	Records() []*record.Record
	// Live returns those of exchanges that go on, at most limit, in the order of their
	// beginning.
	Live(limit int) []record.Record
}

//go:embed page
var files embed.FS

// maxListed bounds a list of exchanges.
const maxListed = 500

// Handler serves the inspector under /inspector/: a page, and the JSON that it shows. If
// token is not "", the JSON needs it as a bearer token; the page itself has no data. Without
// one, requests must name an IP address or localhost as their host.
func Handler(s Source, token string) http.Handler {
	// The name is valid, which is the only error that there can be.
	page, _ := fs.Sub(files, "page")
	mux := http.NewServeMux()
	mux.Handle("GET /inspector/", http.StripPrefix("/inspector/", http.FileServerFS(page)))
	mux.HandleFunc("GET /inspector/records", func(w http.ResponseWriter, r *http.Request) { list(w, r, s) })
	mux.HandleFunc("GET /inspector/records/{id}", func(w http.ResponseWriter, r *http.Request) { show(w, r, s) })

	// Sums have one length, so that the comparison does not show that of the token.
	sum := sha256.Sum256([]byte("Bearer " + token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The page shows what models and clients wrote: it may run nothing and send nothing.
		h := w.Header()
		h.Set(
			"Content-Security-Policy",
			"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
				"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")

		// The page itself has no data, and asks for the token.
		sent := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if token != "" && strings.HasPrefix(r.URL.Path, "/inspector/records") &&
			subtle.ConstantTimeCompare(sent[:], sum[:]) == 0 {
			h.Set("WWW-Authenticate", "Bearer")
			http.Error(w, "Send the token of inspector.token as a bearer token.", http.StatusUnauthorized)
			return
		}
		// A page of another site may have its name resolve to this machine (DNS rebinding).
		if token == "" && !direct(r.Host) {
			http.Error(
				w,
				"Without a token, the inspector is opened by an IP address or as localhost. Set "+
					"inspector.token to open it by another name.",
				http.StatusForbidden,
			)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// direct reports whether a request's host is an address or localhost. Any other name can be
// that of a site whose owner lets it lead here, so that its pages read what is served.
func direct(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.EqualFold(host, "localhost") || net.ParseIP(host) != nil
}

// Line is an exchange in a list.
type Line struct {
	ID       string        `json:"id"`
	Started  time.Time     `json:"started"`
	Tenant   string        `json:"tenant,omitempty"`
	Session  string        `json:"session,omitempty"`
	Redacted bool          `json:"redacted,omitempty"`
	Live     bool          `json:"live,omitempty"`
	Target   record.Target `json:"target"`
	Result   record.Result `json:"result"`
	// Question is the first words of what the user asked last; "": the record does not have them.
	Question string `json:"question,omitempty"`
}

func newLine(r *record.Record, live bool) Line {
	return Line{
		ID: r.ID, Started: r.Started, Tenant: r.Tenant, Session: r.Settings.Session, Redacted: r.Redacted,
		Live: live, Target: r.Target, Result: r.Result, Question: question(r),
	}
}

// has reports whether a text, in lower case, is in what a row has: ids, the first words of the question, the error.
func (l *Line) has(text string) bool {
	for _, s := range []string{l.ID, l.Result.Response, l.Session, l.Question, l.Result.Error} {
		if strings.Contains(strings.ToLower(s), text) {
			return true
		}
	}
	return false
}

// list writes the last exchanges that a query wants, the newest first: by model, outcome, tenant, api and repair, and
// by a text, see [Line.has].
func list(w http.ResponseWriter, r *http.Request, s Source) {
	q := r.URL.Query()
	limit, err := strconv.Atoi(cmp.Or(q.Get("limit"), strconv.Itoa(maxListed)))
	if err != nil || limit < 1 {
		http.Error(w, "limit must be a number from 1 on.", http.StatusBadRequest)
		return
	}

	// Questions are in one line, with single spaces.
	text := strings.ToLower(strings.Join(strings.Fields(q.Get("q")), " "))
	wanted := func(l *Line) bool {
		if !l.has(text) {
			return false
		}
		for name, value := range map[string]string{
			"model": l.Target.Model, "outcome": l.Result.Outcome, "tenant": l.Tenant, "api": l.Target.API,
		} {
			if want := q.Get(name); want != "" && want != value {
				return false
			}
		}
		repair := q.Get("repair")
		return repair == "" || repair == "any" && len(l.Result.Repairs) > 0 || l.Result.Repairs[repair] > 0
	}

	// Those that go on come first, then the last ones. All are read before they are filtered: few
	// are kept in memory.
	lines := []Line{}
	live := s.Live(maxListed)
	for i := range live {
		lines = append(lines, newLine(&live[i], true))
	}
	slices.Reverse(lines)

	for _, rec := range slices.Backward(s.Records()) {
		lines = append(lines, newLine(rec, false))
	}
	lines = slices.DeleteFunc(lines, func(l Line) bool { return !wanted(&l) })
	write(w, lines[:min(len(lines), limit, maxListed)])
}

// Shown is an exchange as the page shows it.
type Shown struct {
	Line

	Request record.Request `json:"request"`
	Config  string         `json:"config,omitempty"`
	View    *View          `json:"view"`
	// Before is the exchange of the same session, or that the request continues, whose
	// prompt can be compared; "": there is none.
	Before string `json:"before,omitempty"`
}

// show writes the last exchange with an id.
func show(w http.ResponseWriter, r *http.Request, s Source) {
	id := r.PathValue("id")
	live := s.Live(0)
	for i := range slices.Backward(live) {
		if live[i].ID == id {
			write(w, shown(&live[i], true, s))
			return
		}
	}

	for _, rec := range slices.Backward(s.Records()) {
		if rec.ID == id {
			if r.URL.Query().Get("raw") != "" {
				w.Header().Set("Content-Disposition", `attachment; filename="record.json"`)
				write(w, rec)
				return
			}
			write(w, shown(rec, false, s))
			return
		}
	}

	http.Error(
		w, "This exchange is not in memory (any more). Files are in record.folder: envoy-harmony inspect.",
		http.StatusNotFound,
	)
}

func shown(r *record.Record, live bool, s Source) *Shown {
	return &Shown{
		Line: newLine(r, live), Request: r.Request, Config: r.Config, View: Of(r),
		Before: before(r, s.Records()),
	}
}

// write writes JSON.
func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	// An error means that the client has left.
	_ = json.NewEncoder(w).Encode(v)
}
