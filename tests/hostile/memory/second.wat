;; attack: A second memory, of which the limits know nothing.
;; expect: load -> structure (memories)

;; in core:
(memory 1)
