package gate

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/pins"
	"github.com/countersign-mcp/countersign/server/schema"
)

// badArguments refuses arguments that the tool's listed inputSchema refuses: no person
// should be asked about a call that its server will not take. Of a call that nobody
// is asked about, its server is the judge. What the schema leaves open is not
// refused, and is shown to whoever decides.
func (k *call) badArguments() *refusal {
	args := k.c.Args
	if len(args) == 0 {
		args = json.RawMessage(`{}`)
	}
	v := k.g.schemas.of(k.c.Server, k.tool).Check(args)
	k.unsure = v.Gaps
	if v.Refused == nil {
		return nil
	}
	no := &refusal{
		code: codeParams, reason: "invalid_arguments", rule: v.Refused.Rule, pointer: v.Refused.Pointer,
		message: fmt.Sprintf(sayBadArguments, v.Refused),
	}
	if v.Refused.Rule == schema.TooComplex {
		no.message = sayTooComplex
	}
	return no
}

// doubts are what people are told of arguments that can't be judged for sure.
func (k *call) doubts() []string {
	if len(k.unsure) == 0 {
		return nil
	}
	return []string{fmt.Sprintf(sayUnsure, strings.Join(k.unsure, ", "))}
}

// maxSchemas bounds what is kept compiled. A schema takes far less time to compile
// than a call to be asked about.
const maxSchemas = 128

// schemas are the compiled inputSchemas of tools that people were asked about, each
// as it was listed last.
type schemas struct {
	mu    sync.Mutex
	known map[string]compiled // by server and tool
}

type compiled struct {
	of     action.Digest // the definition
	schema *schema.Schema
}

func (s *schemas) of(server string, t pins.Tool) *schema.Schema {
	key := server + "/" + t.Name
	s.mu.Lock()
	known, ok := s.known[key]
	s.mu.Unlock()
	if ok && known.of == t.Digest {
		return known.schema
	}
	raw, _ := action.Member(t.Raw, "inputSchema")
	now := compiled{t.Digest, schema.Compile(raw)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxSchemas && !ok {
		s.known = map[string]compiled{}
	}
	s.known[key] = now
	return now.schema
}
