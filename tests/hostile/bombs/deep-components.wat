;; attack: Components within components, 90 deep.
;; expect: load -> structure (depth)

;; in component:
;; repeat 90: (component
;; repeat 90: )
