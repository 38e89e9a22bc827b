package pins

import "fmt"

// Bounds of a comparison line by line: cells of its table, and lines of the same
// that are shown around a change.
const (
	mostCells = 4 << 20
	around    = 1
)

// lineDiff compares two texts. What goes begins with "- ", what comes with "+ ",
// and what stays around it with two blanks. What stays elsewhere is counted.
func lineDiff(a, b []string) []string {
	from := 0
	for from < len(a) && from < len(b) && a[from] == b[from] {
		from++
	}
	end := 0
	for end < len(a)-from && end < len(b)-from && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	var all []string
	for _, l := range a[:from] {
		all = append(all, "  "+l)
	}
	all = append(all, changed(a[from:len(a)-end], b[from:len(b)-end])...)
	for _, l := range a[len(a)-end:] {
		all = append(all, "  "+l)
	}
	return folded(all)
}

// changed compares by the longest common subsequence; where that would take too
// much, everything goes and comes.
func changed(a, b []string) []string {
	var out []string
	if len(a)*len(b) > mostCells {
		for _, l := range a {
			out = append(out, "- "+l)
		}
		for _, l := range b {
			out = append(out, "+ "+l)
		}
		return out
	}
	width := len(b) + 1
	common := make([]int32, (len(a)+1)*width) // of a[i:] and b[j:]
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i*width+j] = common[(i+1)*width+j+1] + 1
			} else {
				common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, "  "+a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[(i+1)*width+j] >= common[i*width+j+1]:
			out = append(out, "- "+a[i])
			i++
		default:
			out = append(out, "+ "+b[j])
			j++
		}
	}
	return out
}

// folded leaves out what stays the same and is not next to a change, and says so.
func folded(lines []string) []string {
	near := make([]bool, len(lines))
	for i, l := range lines {
		if l[0] == ' ' {
			continue
		}
		for k := max(0, i-around); k <= min(len(lines)-1, i+around); k++ {
			near[k] = true
		}
	}
	var out []string
	for i := 0; i < len(lines); {
		if near[i] {
			out = append(out, lines[i])
			i++
			continue
		}
		n := 0
		for i+n < len(lines) && !near[i+n] {
			n++
		}
		if n == 1 {
			out = append(out, lines[i])
		} else {
			out = append(out, fmt.Sprintf("  ⟨%d lines stay the same⟩", n))
		}
		i += n
	}
	return out
}
