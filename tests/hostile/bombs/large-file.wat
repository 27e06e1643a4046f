;; attack: 3 MB that nobody reads.
;; expect: load -> size (component_bytes)

;; in core:
(@custom "padding"
;; repeat 48000: "................................................................"
)
