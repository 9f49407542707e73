package enginesim

import (
	"cmp"
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

// The roles of a disaggregated engine.
const (
	RolePrefill = "prefill" // computes prompts
	RoleDecode  = "decode"  // generates outputs
)

// pollInterval is the interval at which a decode engine looks for its room.
const pollInterval = 10 * time.Millisecond

// requestPart describes which part of a disaggregated request this engine does.
type requestPart struct {
	role string
	// SGLang: the bootstrap room of the two requests.
	bootstrap string // host:port
	room      int64
	// vLLM, decode: what the prefill engine returned.
	received *kvTransfer
	// vLLM, prefill: what this engine returns.
	produced *kvTransfer
}

// kvTransfer is vLLM's kv_transfer_params.
type kvTransfer struct {
	RemotePrefill bool    `json:"do_remote_prefill"`
	RemoteDecode  bool    `json:"do_remote_decode"`
	EngineID      *string `json:"remote_engine_id"`
	BlockIDs      []int   `json:"remote_block_ids"`
	Host          *string `json:"remote_host"`
	Port          *int    `json:"remote_port"`
}

// partReader is an API that supports disaggregated requests.
type partReader interface {
	readPart(s *Sim, p params) (*requestPart, *apiError)
}

func (sglangAPI) readPart(s *Sim, p params) (*requestPart, *apiError) { return s.readBootstrap(p) }

func (vllmAPI) readPart(s *Sim, p params) (*requestPart, *apiError) {
	return s.readTransfer(p["kv_transfer_params"])
}

func (a grpcAPI) readPart(s *Sim, p params) (*requestPart, *apiError) {
	if a.partOf == nil {
		return nil, nil
	}
	return a.partOf(s, p)
}

// readBootstrap reads the bootstrap members of SGLang, which are the same in both
// requests.
func (s *Sim) readBootstrap(p params) (*requestPart, *apiError) {
	if !p.has("bootstrap_room") {
		if s.options.Role != "" {
			return nil, badRequest("", "Disaggregated request received without bootstrap room id.")
		}
		return nil, nil
	}

	var host string
	var port int
	l := &requestPart{role: s.options.Role}
	if err := p.getAll(
		field{"bootstrap_host", &host}, field{"bootstrap_port", &port}, field{"bootstrap_room", &l.room},
	); err != nil {
		return nil, err
	}

	l.bootstrap = net.JoinHostPort(host, strconv.Itoa(port))
	switch {
	case l.role == "":
		return nil, badRequest("bootstrap_room", "This engine has no role.")
	case host == "" || port < 1 || l.room < 0:
		return nil, badRequest("bootstrap_room",
			"bootstrap_host, bootstrap_port and bootstrap_room belong together.")
	}

	return l, nil
}

// readTransfer reads kv_transfer_params of vLLM. Without them a request is not
// disaggregated.
func (s *Sim) readTransfer(raw json.RawMessage) (*requestPart, *apiError) {
	if len(raw) == 0 || string(raw) == "null" {
		if s.options.Role != "" {
			return nil, badRequest("kv_transfer_params", "This engine has a role and needs kv_transfer_params.")
		}
		return nil, nil
	}

	var t kvTransfer
	if json.Unmarshal(raw, &t) != nil || t.RemotePrefill == t.RemoteDecode {
		return nil, badRequest("kv_transfer_params",
			"kv_transfer_params must request either remote prefill or remote decode.")
	}

	l := &requestPart{role: RolePrefill}
	if t.RemotePrefill {
		if t.EngineID == nil || t.Host == nil || t.Port == nil || len(t.BlockIDs) == 0 {
			return nil, badRequest("kv_transfer_params",
				"Remote prefill needs remote_engine_id, remote_block_ids, remote_host and remote_port.")
		}
		l.role, l.received = RoleDecode, &t
	} else if t.EngineID != nil || t.Host != nil || t.Port != nil || len(t.BlockIDs) > 0 {
		return nil, badRequest("kv_transfer_params", "Remote decode must not name a remote engine.")
	}

	if s.options.Role != "" && s.options.Role != l.role {
		return nil, badRequest("kv_transfer_params", "This engine has the other role.")
	}

	return l, nil
}

// partOfJSON reads kv_transfer_params in a string.
func partOfJSON(s *Sim, p params) (*requestPart, *apiError) {
	var text string
	if err := p.get("kv_transfer_params_json", &text); err != nil {
		return nil, err
	}
	return s.readTransfer(json.RawMessage(text))
}

// transfers holds what prefill requests keep for decode requests.
type transfers struct {
	client *http.Client

	mu    sync.Mutex
	rooms map[int64]*room
	// vLLM: blocks that no decode engine has fetched, by the hash of the prompt and the first block
	kv   map[string][]int
	next int // the last block
}

// room is a bootstrap room of SGLang.
type room struct {
	prompt   string        // hash of the prompt
	arrived  chan struct{} // closed when the decode request has arrived
	computed chan struct{} // closed when the prompt is computed
	once     sync.Once     // guards arrived
	cached   int
}

func newTransfers() *transfers {
	return &transfers{
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		rooms:  map[int64]*room{}, kv: map[string][]int{},
	}
}

// hashOf returns the hash of a prompt.
func hashOf(prompt []harmony.Token) string {
	b := make([]byte, 0, 4*len(prompt))
	for _, id := range prompt {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// awaitPeer waits until the request can start: a decode request gets the result of
// the prefill request, and SGLang's prefill request waits for the decode request.
// local is the address at which the request arrived.
func (s *Sim) awaitPeer(ctx context.Context, req *modelRequest, local net.Addr) *apiError {
	ctx, cancel := context.WithTimeout(ctx, defaulted(req.behavior.Meet, 30*time.Second))
	defer cancel()

	// A prefill request of vLLM does not wait: the decode request is sent only after its response. The two
	// requests of SGLang run at the same time, and meet in a room.
	switch l := req.part; {
	case l.received != nil:
		return s.fetchBlocks(ctx, req)
	case l.room == 0 && l.bootstrap == "":
		s.keepBlocks(req, local)
		return nil
	case l.role == RolePrefill:
		return s.openRoom(ctx, req, local)
	default:
		return s.findRoom(ctx, req)
	}
}

func kvError(format string, args ...any) *apiError {
	return &apiError{
		status:  http.StatusInternalServerError,
		message: "KVTransferError: " + fmt.Sprintf(format, args...), kind: "InternalServerError",
	}
}

// openRoom opens the bootstrap room and waits for the decode request.
func (s *Sim) openRoom(ctx context.Context, req *modelRequest, local net.Addr) *apiError {
	l := req.part
	// The bootstrap server of this simulator is its own listener. A request that names another one was
	// routed to the wrong prefill engine. There is no address when a test calls the handler directly.
	if local != nil {
		_, port, err := net.SplitHostPort(local.String())
		if err != nil || !strings.HasSuffix(l.bootstrap, ":"+port) {
			return kvError("the bootstrap server of this engine is not at %s", l.bootstrap)
		}
	}

	r := &room{prompt: hashOf(req.prompt), arrived: make(chan struct{}), computed: make(chan struct{})}
	s.transfers.mu.Lock()
	// The room is looked up and taken under one lock, so only one of two requests with the same number gets
	// it.
	_, inUse := s.transfers.rooms[l.room]
	if !inUse {
		s.transfers.rooms[l.room] = r
	}
	s.transfers.mu.Unlock()

	if inUse {
		return badRequest("bootstrap_room", fmt.Sprintf("Room %d is in use.", l.room))
	}

	select {
	case <-r.arrived:
		return nil
	case <-ctx.Done():
		s.closeRoom(l.room)
		return kvError("no decode request has arrived in room %d", l.room)
	}
}

// closeRoom removes a room and returns it.
func (s *Sim) closeRoom(number int64) *room {
	s.transfers.mu.Lock()
	defer s.transfers.mu.Unlock()
	r := s.transfers.rooms[number]
	delete(s.transfers.rooms, number)
	return r
}

// finishPrefill passes the result of SGLang's prefill request to the decode
// request. If the prefill request has failed, the decode request gets nothing and
// times out.
func (s *Sim) finishPrefill(req *modelRequest, state string) {
	if req.part == nil || req.part.role != RolePrefill || req.part.bootstrap == "" {
		return
	}
	if r := s.closeRoom(req.part.room); r != nil && state == StateFinished {
		r.cached = req.cached
		close(r.computed)
	}
}

// findRoom waits for the room of the prefill request, and then for its result.
func (s *Sim) findRoom(ctx context.Context, req *modelRequest) *apiError {
	l := req.part
	where := fmt.Sprintf("http://%s/sim/room?room=%d&prompt=%s", l.bootstrap, l.room, hashOf(req.prompt))
	for {
		// The prefill request may arrive later, or its engine may still start: a missing room and a failed
		// connection are asked again until the time is over.
		var computed struct {
			Cached int `json:"cached"`
		}
		switch status, err := s.post(ctx, where, &computed); {
		case err == nil && status == http.StatusOK:
			req.cached = computed.Cached
			return nil
		// No later answer can be better: both requests must have the same prompt.
		case err == nil && status == http.StatusConflict:
			return kvError("room %d has another prompt", l.room)
		}

		sleep(ctx.Done(), pollInterval)
		if ctx.Err() != nil {
			return kvError("there is no room %d at %s", l.room, l.bootstrap)
		}
	}
}

func (s *Sim) post(ctx context.Context, where string, into any) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, where, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := s.transfers.client.Do(r)
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

	s.transfers.mu.Lock()
	r := s.transfers.rooms[number]
	s.transfers.mu.Unlock()
	switch {
	case r == nil:
		w.WriteHeader(http.StatusNotFound)
		return
	case r.prompt != req.URL.Query().Get("prompt"):
		w.WriteHeader(http.StatusConflict)
		return
	}

	// An engine that lost the connection asks again for the same room, and a channel can be closed only
	// once.
	r.once.Do(func() { close(r.arrived) })

	select {
	case <-r.computed:
		writeJSON(w, http.StatusOK, fmt.Appendf(nil, `{"cached":%d}`, r.cached))
	case <-req.Context().Done():
	}
}

// keepBlocks stores the blocks of a prompt for a decode engine of vLLM.
func (s *Sim) keepBlocks(req *modelRequest, local net.Addr) {
	host, text, port := "127.0.0.1", "", 0
	if local != nil {
		host, text, _ = net.SplitHostPort(local.String()) // the address of a listener is valid
		port, _ = strconv.Atoi(text)
	}

	m := s.transfers
	m.mu.Lock()
	defer m.mu.Unlock()
	// Numbers of blocks are never used twice, so a request that is sent again does not find the blocks of
	// another.
	blocks := make([]int, (len(req.prompt)+s.options.BlockSize-1)/s.options.BlockSize)
	for i := range blocks {
		m.next++
		blocks[i] = m.next
	}

	m.kv[kvKey(hashOf(req.prompt), blocks)] = blocks
	id := "sim-" + text
	req.part.produced = &kvTransfer{RemotePrefill: true, EngineID: &id, BlockIDs: blocks, Host: &host, Port: &port}
}

func kvKey(prompt string, blocks []int) string { return fmt.Sprint(prompt, "/", blocks[0]) }

// fetchBlocks fetches the blocks of the prompt. vLLM counts them as cached.
func (s *Sim) fetchBlocks(ctx context.Context, req *modelRequest) *apiError {
	t := req.part.received
	ids := strings.Trim(strings.ReplaceAll(fmt.Sprint(t.BlockIDs), " ", ","), "[]")
	query := url.Values{"engine": {*t.EngineID}, "blocks": {ids}, "prompt": {hashOf(req.prompt)}}
	where := fmt.Sprintf("http://%s/sim/kv?%s", net.JoinHostPort(*t.Host, strconv.Itoa(*t.Port)), query.Encode())

	var nothing struct{}
	if status, err := s.post(ctx, where, &nothing); err != nil || status != http.StatusOK {
		return kvError("the remote blocks cannot be read")
	}
	// The last id is computed here, because an engine must compute at least one to have an output.
	req.cached = len(req.prompt) - 1
	return nil
}

// serveKV returns blocks. Each can be fetched once.
func (s *Sim) serveKV(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	// The address of a listener is valid.
	_, port, _ := net.SplitHostPort(fmt.Sprint(r.Context().Value(http.LocalAddrContextKey)))

	blocks, bad := parseIDs([]byte("[" + query.Get("blocks") + "]"))
	if bad >= 0 || len(blocks) == 0 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}

	wanted := make([]int, len(blocks))
	for i, id := range blocks {
		wanted[i] = int(id)
	}

	m := s.transfers
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

// producedText returns kv_transfer_params of a prefill response of vLLM as JSON, ""
// if there are none.
func (req *modelRequest) producedText() string {
	if req.part == nil || req.part.produced == nil {
		return ""
	}
	produced, err := json.Marshal(req.part.produced)
	if err != nil { // a struct of numbers and strings always marshals
		return ""
	}
	return string(produced)
}

// appendTransfer appends the members of vLLM's whole replies that say where they were computed.
func (req *modelRequest) appendTransfer(b []byte) []byte {
	b = append(b, `,"metrics":null,"ec_transfer_params":null,"kv_transfer_params":`...)
	return append(b, cmp.Or(req.producedText(), "null")...)
}
