package ledger

import (
	"bufio"
	"errors"
	"io"
)

// lines reads a file line by line without holding more than one of them. It
// splits on \n and on nothing else.
type lines struct {
	r   *bufio.Reader
	buf []byte
}

func newLines(r io.Reader) *lines { return &lines{r: bufio.NewReaderSize(r, 64<<10)} }

// line is what next found.
type line struct {
	text []byte // without its newline; valid until the next call
	long int64  // bytes of a line over maxLine, whose text is then nil
	torn bool   // the file ended before a newline
}

// next returns io.EOF after the last line.
func (l *lines) next() (line, error) {
	l.buf = l.buf[:0]
	var size int64
	for {
		chunk, err := l.r.ReadSlice('\n')
		size += int64(len(chunk))
		if size <= maxLine {
			l.buf = append(l.buf, chunk...)
		}
		switch {
		case err == nil:
			if size > maxLine {
				return line{long: size}, nil
			}
			return line{text: l.buf[:len(l.buf)-1]}, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			if size == 0 {
				return line{}, io.EOF
			}
			if size > maxLine {
				return line{long: size, torn: true}, nil
			}
			return line{text: l.buf, torn: true}, nil
		default:
			return line{}, err
		}
	}
}
