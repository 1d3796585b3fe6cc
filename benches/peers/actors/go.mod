module actors

go 1.21
