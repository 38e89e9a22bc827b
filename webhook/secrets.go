package webhook

import (
	"fmt"

	"github.com/countersign-mcp/countersign/approvals"
)

// verifiers are what the endpoints verify with. They are exchanged as a whole.
type verifiers struct {
	slack     *slackVerifier // nil without Slack
	callbacks map[string]*standardVerifier
}

// Secrets are what is exchanged while the server runs.
type Secrets struct {
	SigningSecrets []string // of Slack; needed where Slack is mounted, left alone elsewhere
	Callbacks      map[string]Inbound
}

// Exchange makes others of the secrets valid, all at once: a request is verified
// with the old ones or with the new ones. On an error the old ones stay.
func (s *Server) Exchange(next Secrets) error {
	v, err := s.verifiersOf(next)
	if err != nil {
		return err
	}
	s.verify.Store(v)
	return nil
}

// Check says why Exchange would refuse them.
func (s *Server) Check(next Secrets) error {
	_, err := s.verifiersOf(next)
	return err
}

func (s *Server) verifiersOf(from Secrets) (*verifiers, error) {
	v := &verifiers{callbacks: map[string]*standardVerifier{}}
	if s.cfg.Slack != nil {
		var err error
		if v.slack, err = newSlackVerifier(from.SigningSecrets); err != nil {
			return nil, err
		}
	}
	for name, in := range from.Callbacks {
		if !approvals.IsSource(name) {
			return nil, fmt.Errorf("webhook: callback source %q: use a-z, 0-9 and -", name)
		}
		one, err := in.verifier()
		if err != nil {
			return nil, fmt.Errorf("webhook: callback source %s: %w", name, err)
		}
		v.callbacks[name] = one
	}
	return v, nil
}
