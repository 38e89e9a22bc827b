// Package upstreamtest is an MCP server for tests: a child process on stdio that
// counts its executions on disk, keeps every frame it was sent, and misbehaves
// where it is asked to. It decodes with encoding/json on purpose, so that it is
// an independent reader of what the gate writes.
//
// A test binary becomes this server by calling [Main] first thing in TestMain.
package upstreamtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Variables that make a test binary the server.
const (
	// DirVar names the directory in which the server keeps its files.
	DirVar = "COUNTERSIGN_TEST_UPSTREAM"
	// EraVar is "legacy" (the default), "modern", "refuses" (-32022), "silent"
	// (no answer to discover) or "mute" (no answer to anything).
	EraVar = "COUNTERSIGN_TEST_ERA"
	// PageVar is how many tools stand on one page; 0 or absent means all.
	PageVar = "COUNTERSIGN_TEST_PAGE"
)

// Main serves and exits when the environment asks for it; else it returns.
func Main() {
	dir := os.Getenv(DirVar)
	if dir == "" {
		return
	}
	page, _ := strconv.Atoi(os.Getenv(PageVar))
	s := &server{dir: dir, era: os.Getenv(EraVar), page: page, out: os.Stdout, cancels: map[string]chan struct{}{}, asked: map[string]chan string{}}
	s.keep("starts.log", strconv.Itoa(os.Getpid()))
	s.serve()
	os.Exit(0)
}

// frame is a message as encoding/json sees it.
type frame struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

type call struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"arguments"`
	Meta struct {
		Token json.RawMessage `json:"progressToken"`
	} `json:"_meta"`
}

type server struct {
	dir, era string
	page     int

	mu      sync.Mutex
	out     *os.File
	cancels map[string]chan struct{}
	asked   map[string]chan string
	asks    int
}

func (s *server) serve() {
	in := bufio.NewReaderSize(os.Stdin, 64<<10)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		s.keep("frames.log", strings.TrimSuffix(line, "\n"))
		var f frame
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			s.keep("bad.log", err.Error())
			continue
		}
		s.handle(f)
	}
}

func (s *server) handle(f frame) {
	if s.era == "mute" {
		return
	}
	switch {
	case f.Method == "server/discover":
		s.discover(f)
	case f.Method == "initialize":
		s.result(f.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"desk","version":"1.2"},"instructions":"Be kind."}`)
	case f.Method == "tools/list":
		s.list(f)
	case f.Method == "tools/call":
		gone := make(chan struct{})
		s.mu.Lock()
		s.cancels[string(f.ID)] = gone
		s.mu.Unlock()
		go s.call(f, gone)
	case f.Method == "notifications/cancelled":
		s.cancelled(f)
	case f.Method == "" && len(f.ID) > 0:
		s.answered(f)
	case len(f.ID) > 0:
		s.fail(f.ID, `{"code":-32601,"message":"no such method"}`)
	}
}

func (s *server) discover(f frame) {
	switch s.era {
	case "modern":
		s.result(f.ID, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"instructions":"Be modern.","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"desk","version":"2.0"}}}`)
	case "refuses":
		s.fail(f.ID, `{"code":-32022,"message":"unsupported","data":{"supported":["2099-01-01"]}}`)
	case "silent":
	default:
		s.fail(f.ID, `{"code":-32601,"message":"no such method"}`)
	}
}

// list reads the tools anew each time, so that a test can change them.
func (s *server) list(f frame) {
	raw, err := os.ReadFile(filepath.Join(s.dir, "tools.json"))
	if err != nil {
		s.fail(f.ID, `{"code":-32603,"message":"no tools.json"}`)
		return
	}
	var tools []json.RawMessage
	if err := json.Unmarshal(raw, &tools); err != nil {
		panic(err)
	}
	var p struct {
		Cursor string `json:"cursor"`
	}
	_ = json.Unmarshal(f.Params, &p)
	from, _ := strconv.Atoi(p.Cursor)
	to, next := len(tools), ""
	if s.page > 0 && from+s.page < len(tools) {
		to = from + s.page
		next = fmt.Sprintf(`,"nextCursor":"%d"`, to)
	}
	parts := make([]string, 0, to-from)
	for _, t := range tools[from:to] {
		parts = append(parts, string(t))
	}
	s.result(f.ID, `{"tools":[`+strings.Join(parts, ",")+`]`+next+`}`)
}

// call does one thing for each tool name; every one of them counts as run.
func (s *server) call(f frame, gone chan struct{}) {
	var c call
	if err := json.Unmarshal(f.Params, &c); err != nil {
		panic(err)
	}
	s.keep("calls.log", c.Name+" "+string(c.Args))
	name, _, _ := strings.Cut(c.Name, "_")
	switch name {
	case "crash":
		os.Exit(3)
	case "hang":
		<-gone
		s.keep("cancelled.log", string(f.ID))
	case "wait": // until a test lets it go
		for {
			if _, err := os.Stat(filepath.Join(s.dir, "go")); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		s.result(f.ID, `{"content":[{"type":"text","text":"waited"}]}`)
	case "announce": // that the list has changed
		s.raw(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		s.result(f.ID, `{"content":[]}`)
	case "fail":
		s.result(f.ID, `{"content":[{"type":"text","text":"no such order"}],"isError":true,"x":9007199254740993}`)
	case "rpcerror":
		s.fail(f.ID, `{"code":-32050,"message":"own code","data":{"n":9007199254740993},"extra":true}`)
	case "leak": // in an error's words, and on stderr
		fmt.Fprintf(os.Stderr, "leak: %s\n", c.Args)
		text, _ := json.Marshal("bad value: " + string(c.Args))
		s.fail(f.ID, `{"code":-32050,"message":`+string(text)+`,"data":`+string(c.Args)+`}`)
	case "spill": // a line that is no message
		s.raw("bad value: " + string(c.Args))
	case "garbage":
		s.raw("this is not JSON")
	case "twice":
		s.raw(`{"jsonrpc":"2.0","id":` + string(f.ID) + `,"id":"x","result":{}}`)
	case "ask":
		s.result(f.ID, `{"content":[],"answers":`+s.ask()+`}`)
	case "progress":
		for i := 1; i <= 3; i++ {
			s.raw(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"big":9007199254740993}}`, c.Meta.Token, i))
		}
		s.result(f.ID, `{"content":[]}`)
	case "big":
		s.result(f.ID, `{"content":[{"type":"text","text":"`+strings.Repeat("x", 2<<20)+`"}]}`)
	case "env":
		env, _ := json.Marshal(os.Environ())
		s.result(f.ID, `{"content":[],"env":`+string(env)+`}`)
	default:
		s.result(f.ID, `{"content":[{"type":"text","text":"ran"}],  "echo": `+string(c.Args)+`,"unknownField":{"n":9007199254740993}}`)
	}
}

// ask makes three requests of the client and returns what came back, in order.
func (s *server) ask() string {
	var got []string
	for _, method := range []string{"sampling/createMessage", "elicitation/create", "ping"} {
		s.mu.Lock()
		s.asks++
		id := fmt.Sprintf(`"ask-%d"`, s.asks)
		answer := make(chan string, 1)
		s.asked[id] = answer
		s.mu.Unlock()
		s.raw(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{}}`)
		got = append(got, <-answer)
	}
	return "[" + strings.Join(got, ",") + "]"
}

func (s *server) answered(f frame) {
	s.mu.Lock()
	answer := s.asked[string(f.ID)]
	s.mu.Unlock()
	if answer == nil {
		return
	}
	if f.Error != nil {
		answer <- string(f.Error)
	} else {
		answer <- string(f.Result)
	}
}

func (s *server) cancelled(f frame) {
	var p struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	_ = json.Unmarshal(f.Params, &p)
	s.mu.Lock()
	gone := s.cancels[string(p.RequestID)]
	delete(s.cancels, string(p.RequestID))
	s.mu.Unlock()
	if gone != nil {
		close(gone)
	}
}

func (s *server) result(id json.RawMessage, result string) {
	s.raw(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + `}`)
}

func (s *server) fail(id json.RawMessage, e string) {
	s.raw(`{"jsonrpc":"2.0","id":` + string(id) + `,"error":` + e + `}`)
}

func (s *server) raw(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.out.WriteString(line + "\n")
}

// keep appends a line to a file and makes it durable: the test's judge.
func (s *server) keep(name, line string) {
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.WriteString(line + "\n"); err != nil {
		panic(err)
	}
	if err := f.Sync(); err != nil {
		panic(err)
	}
}
