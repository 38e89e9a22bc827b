package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"github.com/countersign-mcp/countersign/approvals"
)

// keptHead is the first line of a kept answer; the answer's own bytes follow it.
// An encoder would compact and escape them, and what is handed out again has to
// be what was handed out first.
type keptHead struct {
	At    time.Time `json:"at"`
	Error bool      `json:"error"`
}

func encodeKept(k approvals.Kept) ([]byte, error) {
	head, err := json.Marshal(keptHead{At: k.At, Error: k.Error != nil})
	if err != nil {
		return nil, err
	}
	body := k.Result
	if k.Error != nil {
		body = k.Error
	}
	return append(append(head, '\n'), body...), nil
}

func decodeKept(b []byte) (*approvals.Kept, error) {
	first, body, ok := bytes.Cut(b, []byte{'\n'})
	var head keptHead
	if !ok {
		return nil, errors.New("a kept answer has no first line")
	}
	if err := json.Unmarshal(first, &head); err != nil {
		return nil, err
	}
	k := &approvals.Kept{At: head.At}
	if head.Error {
		k.Error = body
	} else {
		k.Result = body
	}
	return k, nil
}
