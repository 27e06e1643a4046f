;; attack: Uses a second import of one interface under another name, which no policy needs.
;; expect: load -> invalid
;; proposal: CM_IMPLEMENTS

;; in component:
(import "mine" (implements "pointsman:policy/types@0.1.0") (instance))
