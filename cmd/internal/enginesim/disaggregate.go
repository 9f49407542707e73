package enginesim

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The roles of an engine that does only part of a request.
const (
	RolePrefill = "prefill" // it computes prompts
	RoleDecode  = "decode"  // it says outputs
)

// pollInterval is how long a decode engine waits before it looks again for its
// room.
const pollInterval = 10 * time.Millisecond

// leg is the part of a request that this engine is to do.
type leg struct {
	role string
	// Of SGLang: where the legs meet.
	at   string // host:port
	room int64
	// Of a decode leg of vLLM: what the prefill leg was told.
	told *kvTransfer
	// Of a prefill leg of vLLM: what it tells.
	tells *kvTransfer
}

// kvTransfer are vLLM's kv_transfer_params.
type kvTransfer struct {
	RemotePrefill bool    `json:"do_remote_prefill"`
	RemoteDecode  bool    `json:"do_remote_decode"`
	EngineID      *string `json:"remote_engine_id"`
	BlockIDs      []int   `json:"remote_block_ids"`
	Host          *string `json:"remote_host"`
	Port          *int    `json:"remote_port"`
}

// legReader is an API whose requests can be legs.
type legReader interface {
	readLeg(s *Sim, p params) (*leg, *refusal)
}

func (sglangAPI) readLeg(s *Sim, p params) (*leg, *refusal) { return s.readRoom(p) }

func (vllmAPI) readLeg(s *Sim, p params) (*leg, *refusal) {
	return s.readTransfer(p["kv_transfer_params"])
}

func (a grpcAPI) readLeg(s *Sim, p params) (*leg, *refusal) {
	if a.leg == nil {
		return nil, nil
	}
	return a.leg(s, p)
}

// readRoom reads what SGLang has for it: both legs name the same.
func (s *Sim) readRoom(p params) (*leg, *refusal) {
	if !p.has("bootstrap_room") {
		if s.options.Role != "" {
			return nil, badRequest("", "Disaggregated request received without bootstrap room id.")
		}
		return nil, nil
	}
	var host string
	var port int
	l := &leg{role: s.options.Role}
	if err := p.getAll(field{"bootstrap_host", &host}, field{"bootstrap_port", &port}, field{"bootstrap_room", &l.room}); err != nil {
		return nil, err
	}
	l.at = net.JoinHostPort(host, strconv.Itoa(port))
	switch {
	case l.role == "":
		return nil, badRequest("bootstrap_room", "This engine is neither prefill nor decode.")
	case host == "" || port < 1 || l.room < 0:
		return nil, badRequest("bootstrap_room", "bootstrap_host, bootstrap_port and bootstrap_room belong together.")
	}
	return l, nil
}

// readTransfer reads what vLLM has for it. Without parameters a request is
// no leg.
func (s *Sim) readTransfer(raw json.RawMessage) (*leg, *refusal) {
	if len(raw) == 0 || string(raw) == "null" {
		if s.options.Role != "" {
			return nil, badRequest("kv_transfer_params", "This engine does only part of a request.")
		}
		return nil, nil
	}
	var t kvTransfer
	if json.Unmarshal(raw, &t) != nil || t.RemotePrefill == t.RemoteDecode {
		return nil, badRequest("kv_transfer_params", "kv_transfer_params must ask for one of remote prefill and remote decode.")
	}
	l := &leg{role: RolePrefill}
	if t.RemotePrefill {
		if t.EngineID == nil || t.Host == nil || t.Port == nil || len(t.BlockIDs) == 0 {
			return nil, badRequest("kv_transfer_params", "Remote prefill needs remote_engine_id, remote_block_ids, remote_host and remote_port.")
		}
		l.role, l.told = RoleDecode, &t
	} else if t.EngineID != nil || t.Host != nil || t.Port != nil || len(t.BlockIDs) > 0 {
		return nil, badRequest("kv_transfer_params", "Remote decode knows no remote engine yet.")
	}
	if s.options.Role != "" && s.options.Role != l.role {
		return nil, badRequest("kv_transfer_params", "This engine does the other part of a request.")
	}
	return l, nil
}

// legOfJSON reads kv_transfer_params that are a text.
func legOfJSON(s *Sim, p params) (*leg, *refusal) {
	var text string
	if err := p.get("kv_transfer_params_json", &text); err != nil {
		return nil, err
	}
	return s.readTransfer(json.RawMessage(text))
}

// meetings are what prefill legs have for decode legs.
type meetings struct {
	client *http.Client

	mu    sync.Mutex
	rooms map[int64]*room
	kv    map[string][]int // blocks of vLLM that no decode engine has fetched, by the hash of the prompt and their first
	next  int              // block
}

// room is where SGLang's legs meet.
type room struct {
	prompt  string        // its hash
	arrived chan struct{} // closed once the decode leg is there
	done    chan struct{} // closed once the prompt is computed
	once    sync.Once     // of arrived
	cached  int
}

func newMeetings() *meetings {
	return &meetings{
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		rooms:  map[int64]*room{}, kv: map[string][]int{},
	}
}

func hashOf(prompt []harmony.Token) string {
	b := make([]byte, 0, 4*len(prompt))
	for _, id := range prompt {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// meet lets the leg begin: a decode leg fetches what the prefill leg has computed,
// SGLang's prefill leg waits for the decode leg. local is the address that the
// request came to.
func (s *Sim) meet(ctx context.Context, req *modelRequest, local net.Addr) *refusal {
	ctx, cancel := context.WithTimeout(ctx, defaulted(req.behavior.Meet, 30*time.Second))
	defer cancel()
	switch l := req.leg; {
	case l.told != nil:
		return s.fetch(ctx, req)
	case l.room == 0 && l.at == "":
		s.keep(req, local)
		return nil
	case l.role == RolePrefill:
		return s.openRoom(ctx, req, local)
	default:
		return s.findRoom(ctx, req)
	}
}

func kvError(format string, args ...any) *refusal {
	return &refusal{http.StatusInternalServerError, "KVTransferError: " + fmt.Sprintf(format, args...), "InternalServerError", ""}
}

// openRoom waits in the leg's room until the decode leg is there.
func (s *Sim) openRoom(ctx context.Context, req *modelRequest, local net.Addr) *refusal {
	l := req.leg
	if local != nil {
		_, port, err := net.SplitHostPort(local.String())
		if err != nil || !strings.HasSuffix(l.at, ":"+port) {
			return kvError("the bootstrap server of this engine is not at %s", l.at)
		}
	}
	r := &room{prompt: hashOf(req.prompt), arrived: make(chan struct{}), done: make(chan struct{})}
	s.meetings.mu.Lock()
	_, taken := s.meetings.rooms[l.room]
	if !taken {
		s.meetings.rooms[l.room] = r
	}
	s.meetings.mu.Unlock()
	if taken {
		return badRequest("bootstrap_room", fmt.Sprintf("Room %d is taken.", l.room))
	}
	select {
	case <-r.arrived:
		return nil
	case <-ctx.Done():
		s.closeRoom(l.room)
		return kvError("nobody has come to room %d", l.room)
	}
}

func (s *Sim) closeRoom(number int64) *room {
	s.meetings.mu.Lock()
	defer s.meetings.mu.Unlock()
	r := s.meetings.rooms[number]
	delete(s.meetings.rooms, number)
	return r
}

// part ends a leg that has met: what SGLang's prefill leg has computed goes to the
// decode leg. Of a prefill leg that failed a decode leg hears nothing.
func (s *Sim) part(req *modelRequest, state string) {
	if req.leg == nil || req.leg.role != RolePrefill || req.leg.at == "" {
		return
	}
	if r := s.closeRoom(req.leg.room); r != nil && state == StateFinished {
		r.cached = req.cached
		close(r.done)
	}
}

// findRoom looks for the prefill leg's room until it is there, and waits for
// what it computes.
func (s *Sim) findRoom(ctx context.Context, req *modelRequest) *refusal {
	l := req.leg
	where := fmt.Sprintf("http://%s/sim/room?room=%d&prompt=%s", l.at, l.room, hashOf(req.prompt))
	for {
		var computed struct {
			Cached int `json:"cached"`
		}
		switch status, err := s.post(ctx, where, &computed); {
		case err == nil && status == http.StatusOK:
			req.cached = computed.Cached
			return nil
		case err == nil && status == http.StatusConflict:
			return kvError("room %d is of another prompt", l.room)
		}
		sleep(ctx.Done(), pollInterval)
		if ctx.Err() != nil {
			return kvError("there is no room %d at %s", l.room, l.at)
		}
	}
}

func (s *Sim) post(ctx context.Context, where string, into any) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, where, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := s.meetings.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		err = json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(into)
	}
	return resp.StatusCode, err
}

// serveRoom answers a decode engine that looks for a room.
func (s *Sim) serveRoom(w http.ResponseWriter, req *http.Request) {
	number, err := strconv.ParseInt(req.URL.Query().Get("room"), 10, 64)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.meetings.mu.Lock()
	r := s.meetings.rooms[number]
	s.meetings.mu.Unlock()
	switch {
	case r == nil:
		w.WriteHeader(http.StatusNotFound)
		return
	case r.prompt != req.URL.Query().Get("prompt"):
		w.WriteHeader(http.StatusConflict)
		return
	}
	r.once.Do(func() { close(r.arrived) })
	select {
	case <-r.done:
		writeJSON(w, http.StatusOK, fmt.Appendf(nil, `{"cached":%d}`, r.cached))
	case <-req.Context().Done():
	}
}

// keep keeps the blocks of a prompt for a decode engine of vLLM.
func (s *Sim) keep(req *modelRequest, local net.Addr) {
	host, text, port := "127.0.0.1", "", 0
	if local != nil {
		host, text, _ = net.SplitHostPort(local.String()) // of a listener
		port, _ = strconv.Atoi(text)
	}
	m := s.meetings
	m.mu.Lock()
	defer m.mu.Unlock()
	blocks := make([]int, (len(req.prompt)+s.options.BlockSize-1)/s.options.BlockSize)
	for i := range blocks {
		m.next++
		blocks[i] = m.next
	}
	m.kv[kvKey(hashOf(req.prompt), blocks)] = blocks
	id := "sim-" + text
	req.leg.tells = &kvTransfer{RemotePrefill: true, EngineID: &id, BlockIDs: blocks, Host: &host, Port: &port}
}

func kvKey(prompt string, blocks []int) string { return fmt.Sprint(prompt, "/", blocks[0]) }

// fetch fetches the blocks of the prompt. vLLM counts them as cached.
func (s *Sim) fetch(ctx context.Context, req *modelRequest) *refusal {
	t := req.leg.told
	ids := strings.Trim(strings.ReplaceAll(fmt.Sprint(t.BlockIDs), " ", ","), "[]")
	query := url.Values{"engine": {*t.EngineID}, "blocks": {ids}, "prompt": {hashOf(req.prompt)}}
	where := fmt.Sprintf("http://%s/sim/kv?%s", net.JoinHostPort(*t.Host, strconv.Itoa(*t.Port)), query.Encode())
	var nothing struct{}
	if status, err := s.post(ctx, where, &nothing); err != nil || status != http.StatusOK {
		return kvError("the remote blocks cannot be read")
	}
	req.cached = len(req.prompt) - 1
	return nil
}

// serveKV hands blocks over, once.
func (s *Sim) serveKV(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	_, port, _ := net.SplitHostPort(fmt.Sprint(r.Context().Value(http.LocalAddrContextKey))) // of a listener
	blocks, bad := parseIDs([]byte("[" + query.Get("blocks") + "]"))
	if bad >= 0 || len(blocks) == 0 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	wanted := make([]int, len(blocks))
	for i, id := range blocks {
		wanted[i] = int(id)
	}
	m := s.meetings
	m.mu.Lock()
	defer m.mu.Unlock()
	key := kvKey(query.Get("prompt"), wanted)
	if query.Get("engine") != "sim-"+port || !slices.Equal(m.kv[key], wanted) {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	delete(m.kv, key)
	writeJSON(w, http.StatusOK, []byte("{}"))
}

// transferText is what a prefill leg of vLLM tells, as JSON; "" if it is none.
func (req *modelRequest) transferText() string {
	if req.leg == nil || req.leg.tells == nil {
		return ""
	}
	told, err := json.Marshal(req.leg.tells)
	if err != nil { // numbers and texts always marshal
		return ""
	}
	return string(told)
}

// appendTransfer writes it as a member.
func (req *modelRequest) appendTransfer(b []byte) []byte {
	if told := req.transferText(); told != "" {
		b = append(append(b, `,"kv_transfer_params":`...), told...)
	}
	return b
}
