package slacktest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Call is one request to the Web API, or to a response URL.
type Call struct {
	Method string            // "chat.postMessage", "response_url"
	Args   map[string]string // without the token; JSON values as JSON
	At     time.Time
}

// args are the arguments of a call, from a form or a JSON object.
type args map[string]string

func (a args) has(name string) bool { _, ok := a[name]; return ok }

func (a args) flag(name string) bool { return a[name] == "1" || a[name] == "true" }

func (a args) raw(name string) json.RawMessage {
	if v := a[name]; v != "" {
		return json.RawMessage(v)
	}
	return nil
}

// refusal is an error answer.
type refusal struct {
	code   string
	detail map[string]any
}

func refuse(code string) *refusal { return &refusal{code: code} }

type object = map[string]any

// method is one entry of the Web API.
type method struct {
	scopes func(*Slack, args) []string // all are needed
	json   bool                        // takes a JSON body
	tier   int                         // calls a minute, with WithRateLimits; 0 = not limited here
	run    func(*Slack, args) (object, *refusal)
}

// Calls counts the requests to a method so far, failed ones included.
func (s *Slack) Calls(method string) int { return len(s.Requests(method)) }

// Requests lists the requests to a method so far ("" for all), oldest first.
func (s *Slack) Requests(method string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests(method)
}

// WaitCalls waits until a method has been called n times in all.
func (s *Slack) WaitCalls(ctx context.Context, method string, n int) error {
	return s.wait(ctx, fmt.Sprintf("%d calls of %s", n, method), func() bool { return len(s.requests(method)) >= n })
}

func (s *Slack) requests(method string) []Call {
	var out []Call
	for _, c := range s.calls {
		if method == "" || c.Method == method {
			out = append(out, c)
		}
	}
	return out
}

func (s *Slack) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler) // closes the connection
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/api/"):
		s.serveAPI(w, r, strings.TrimPrefix(r.URL.Path, "/api/"))
	case strings.HasPrefix(r.URL.Path, "/actions/"):
		s.serveHook(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (s *Slack) serveAPI(w http.ResponseWriter, r *http.Request, name string) {
	m, known := methods[name]
	in, token, err := readArgs(r, known && m.json)
	if err != nil {
		s.write(w, http.StatusOK, failure(refuse(err.Error())))
		return
	}
	s.attempt(w, r, name, in, func() func() {
		answer, status, header := s.run(name, m, known, token, in)
		return func() {
			for k, v := range header {
				w.Header().Set(k, v)
			}
			s.write(w, status, answer)
		}
	})
}

// attempt notes the call, takes its fault and plays it around act, which
// carries the call out and returns what writes the answer.
func (s *Slack) attempt(w http.ResponseWriter, r *http.Request, name string, in args, act func() func()) {
	s.mu.Lock()
	s.calls = append(s.calls, Call{Method: name, Args: in, At: s.now()})
	f := s.fault(name)
	s.cond.Broadcast()
	s.mu.Unlock()
	if !f.Commit {
		if !s.hold(r, f) {
			panic(http.ErrAbortHandler)
		}
		if f.ends() {
			s.fail(w, f)
			return
		}
	}
	answer := act()
	if f.Commit {
		if !s.hold(r, f) {
			panic(http.ErrAbortHandler)
		}
		if f.ends() {
			s.fail(w, f)
			return
		}
	}
	answer()
}

// hold waits for the fault's release and reports whether anyone still listens.
func (s *Slack) hold(r *http.Request, f Fault) bool {
	if f.Hold == nil {
		return true
	}
	select {
	case <-f.Hold:
		return true
	case <-r.Context().Done():
	case <-s.closed:
	}
	return false
}

func (s *Slack) fail(w http.ResponseWriter, f Fault) {
	switch {
	case f.Drop:
		panic(http.ErrAbortHandler)
	case f.Status != 0:
		if f.RetryAfter >= 0 {
			w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
		}
		if f.Status == http.StatusTooManyRequests {
			s.write(w, f.Status, failure(refuse("ratelimited")))
			return
		}
		w.WriteHeader(f.Status)
		io.WriteString(w, "<html>upstream error</html>")
	case f.Empty:
		s.write(w, 200, object{"ok": false})
	default:
		s.write(w, 200, failure(refuse(f.Code)))
	}
}

// run checks token, scopes and limits, and carries the call out.
func (s *Slack) run(name string, m method, known bool, token string, in args) (object, int, map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.cond.Broadcast()
	if !known {
		return failure(refuse("unknown_method")), 200, nil
	}
	if f := s.authorise(token); f != nil {
		return failure(f), 200, nil
	}
	needed := m.scopes(s, in)
	header := map[string]string{
		"X-OAuth-Scopes": s.provided(), "X-Accepted-OAuth-Scopes": strings.Join(needed, ","),
	}
	for _, sc := range needed {
		if !s.scopes[sc] {
			return failure(&refusal{"missing_scope", object{"needed": strings.Join(needed, ","), "provided": s.provided()}}), 200, header
		}
	}
	if wait := s.tooFast(name, m, in); wait > 0 {
		header["Retry-After"] = strconv.Itoa(wait)
		return failure(refuse("ratelimited")), http.StatusTooManyRequests, header
	}
	out, f := m.run(s, in)
	if f != nil {
		return failure(f), 200, header
	}
	out["ok"] = true
	return out, 200, header
}

func (s *Slack) authorise(token string) *refusal {
	switch {
	case token == "":
		return refuse("not_authed")
	case strings.HasPrefix(token, "xapp-"):
		return refuse("not_allowed_token_type")
	case token != s.BotToken:
		return refuse("invalid_auth")
	case s.authError != "":
		return refuse(s.authError)
	}
	return nil
}

func (s *Slack) provided() string {
	var out []string
	for sc := range s.scopes {
		out = append(out, sc)
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

func failure(f *refusal) object {
	out := object{"ok": false, "error": f.code}
	for k, v := range f.detail {
		out[k] = v
	}
	return out
}

func (s *Slack) write(w http.ResponseWriter, status int, v object) {
	b, err := encode(v)
	if err != nil {
		s.tb.Errorf("slacktest: encoding an answer: %v", err)
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b)
}

// readArgs takes the arguments from the query of a GET, a form, or, where the
// method allows it, a JSON object. A token in the query is never accepted.
func readArgs(r *http.Request, takesJSON bool) (args, string, error) {
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if r.Method == http.MethodGet {
		q := r.URL.Query()
		q.Del("token")
		return flat(q), bearer, nil
	}
	if r.Method != http.MethodPost {
		return nil, "", fmt.Errorf("invalid_request_method")
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	if err != nil {
		return nil, "", fmt.Errorf("invalid_post_type")
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, "", fmt.Errorf("missing_post_type")
	}
	switch kind {
	case "application/x-www-form-urlencoded":
		q, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, "", fmt.Errorf("invalid_form_data")
		}
		token := q.Get("token")
		q.Del("token")
		if bearer != "" {
			token = bearer
		}
		return flat(q), token, nil
	case "application/json":
		if !takesJSON {
			return args{}, bearer, nil // Slack doesn't read it and misses the arguments
		}
		in, err := jsonArgs(body)
		return in, bearer, err
	}
	return nil, "", fmt.Errorf("invalid_post_type")
}

func flat(q url.Values) args {
	out := args{}
	for k, v := range q {
		out[k] = v[0]
	}
	return out
}

func jsonArgs(body []byte) (args, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("invalid_json")
	}
	out := args{}
	for k, v := range m {
		var text string
		switch {
		case string(v) == "null" || k == "token":
		case json.Unmarshal(v, &text) == nil:
			out[k] = text
		default:
			out[k] = string(v)
		}
	}
	return out, nil
}
