package ledger

import (
	"bytes"
	"encoding/json"
	"io"
	"time"
)

var labelsMark = []byte(`"labels":[`)

// Labelled gives f each start of an execution since a moment that has labels: what
// its session carries because of it. A line that can't be read as a record is left
// out. The error is that of reading the files; f has seen what came before it.
func (d *Dead) Labelled(since time.Time, f func(Record)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, file := range d.files {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		_, err := scanLines(file, func(line []byte) {
			if !bytes.Contains(line, labelsMark) || !bytes.Contains(line, startMark) {
				return
			}
			var r Record
			if json.Unmarshal(line, &r) == nil && r.Event == ExecStart && len(r.Labels) > 0 && !r.Time.Before(since) {
				f(r)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
