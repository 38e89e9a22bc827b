package pins

// EncodeWithin is Encode with another limit.
func (f *File) EncodeWithin(most int) ([]byte, error) { return f.encode(most) }
