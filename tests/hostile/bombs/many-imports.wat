;; attack: 5,000 imports of types alone, each of which is allowed.
;; expect: load -> structure (imports)

;; in component:
;; repeat 5000: (import "i#" (instance))
