module sunspot/kubernetes/pause

go 1.26
