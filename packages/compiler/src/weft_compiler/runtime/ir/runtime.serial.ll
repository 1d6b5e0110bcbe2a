; runtime.c by `hatch run golden:runtime`: clang 22.1.8, sources 8116e907740f59fe

%struct.weft_instant = type { i64, i64 }

@weft_layout = constant [33 x i64] [i64 64, i64 0, i64 8, i64 16, i64 72, i64 8, i64 16, i64 24, i64 32, i64 56, i64 64, i64 16, i64 32, i64 0, i64 8, i64 8, i64 16, i64 24, i64 96, i64 0, i64 8, i64 16, i64 24, i64 32, i64 40, i64 48, i64 56, i64 64, i64 72, i64 80, i64 88, i64 16, i64 -65536], align 16
@weft_has_counter = internal global i1 false, align 8

define i32 @weft_parallel_for(ptr %0, ptr %1, i64 %2, i64 %3, i64 %4, i64 %5) nounwind {
  %7 = tail call i32 %0(ptr %1, i64 0, i64 0, i64 %2) nounwind
  ret i32 %7
}

define void @weft_begin_program(i64 %0) nounwind {
  ret void
}

define void @weft_end_program() nounwind {
  ret void
}

define void @weft_reset_threads() nounwind {
  ret void
}

define void @weft_stop_threads() nounwind {
  ret void
}

define ptr @weft_claim_arena(ptr captures(ret: address, provenance) %0, i64 %1) nounwind {
  br label %3

3:
  %4 = phi i64 [ 0, %2 ], [ %20, %19 ]
  %5 = getelementptr inbounds nuw i8, ptr %0, i64 %4
  %6 = load atomic i64, ptr %5 monotonic, align 64
  %7 = icmp eq i64 %6, 0
  br i1 %7, label %8, label %19

8:
  %9 = getelementptr inbounds nuw i8, ptr %5, i64 16
  %10 = load atomic i64, ptr %9 monotonic, align 16
  %11 = icmp ult i64 %10, %1
  br i1 %11, label %19, label %12

12:
  %13 = atomicrmw xchg ptr %5, i64 1 acquire, align 64
  %14 = icmp eq i64 %13, 0
  br i1 %14, label %15, label %19

15:
  %16 = load atomic i64, ptr %9 monotonic, align 16
  %17 = icmp ult i64 %16, %1
  br i1 %17, label %18, label %22

18:
  store atomic i64 0, ptr %5 release, align 64
  br label %19

19:
  %20 = add nuw nsw i64 %4, 64
  %21 = icmp samesign ult i64 %4, 960
  br i1 %21, label %3, label %22

22:
  %23 = phi ptr [ %5, %15 ], [ null, %19 ]
  ret ptr %23
}

define void @weft_release_arena(ptr %0) nounwind {
  store atomic i64 0, ptr %0 release, align 64
  ret void
}

define i64 @weft_replace_arena(ptr %0, ptr %1, i64 %2) nounwind {
  %4 = atomicrmw xchg ptr %0, i64 1 acquire, align 64
  %5 = icmp eq i64 %4, 0
  br i1 %5, label %6, label %9

6:
  %7 = getelementptr inbounds nuw i8, ptr %0, i64 8
  store ptr %1, ptr %7, align 8
  %8 = getelementptr inbounds nuw i8, ptr %0, i64 16
  store atomic i64 %2, ptr %8 monotonic, align 16
  store atomic i64 0, ptr %0 release, align 64
  br label %9

9:
  %10 = phi i64 [ 1, %6 ], [ 0, %3 ]
  ret i64 %10
}

define ptr @weft_enter(ptr %0, ptr %1, i64 %2) nounwind {
  %4 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %5 = load ptr, ptr %4, align 8
  %6 = getelementptr inbounds nuw i8, ptr %5, i64 8
  %7 = load i64, ptr %6, align 8
  %8 = icmp eq i64 %2, %7
  br i1 %8, label %12, label %9

9:
  %10 = getelementptr inbounds nuw i8, ptr %5, i64 72
  %11 = load ptr, ptr %10, align 8
  tail call void @Py_IncRef(ptr %11) nounwind
  br label %192

12:
  %13 = getelementptr inbounds nuw i8, ptr %5, i64 88
  %14 = load i64, ptr %13, align 8
  %15 = shl i64 %14, 3
  %16 = alloca i8, i64 %15, align 16
  %17 = icmp sgt i64 %14, 0
  br i1 %17, label %18, label %98

18:
  %19 = getelementptr inbounds nuw i8, ptr %5, i64 96
  %20 = getelementptr inbounds nuw i8, ptr %5, i64 48
  br label %21

21:
  %22 = phi ptr [ %1, %18 ], [ %92, %90 ]
  %23 = phi ptr [ %19, %18 ], [ %91, %90 ]
  %24 = phi i64 [ 0, %18 ], [ %93, %90 ]
  %25 = getelementptr inbounds nuw i8, ptr %23, i64 32
  %26 = load ptr, ptr %23, align 8
  %27 = icmp eq ptr %26, null
  br i1 %27, label %28, label %31

28:
  %29 = getelementptr inbounds nuw i8, ptr %23, i64 8
  %30 = load ptr, ptr %29, align 8
  br label %85

31:
  %32 = getelementptr inbounds nuw i8, ptr %23, i64 16
  %33 = load i64, ptr %32, align 8
  %34 = shl nsw i64 %33, 3
  %35 = getelementptr inbounds i8, ptr %25, i64 %34
  %36 = getelementptr inbounds nuw i8, ptr %22, i64 8
  %37 = load ptr, ptr %22, align 8
  %38 = load ptr, ptr %20, align 8
  %39 = getelementptr inbounds nuw i8, ptr %37, i64 8
  %40 = load ptr, ptr %39, align 8
  %41 = icmp eq ptr %40, %38
  br i1 %41, label %46, label %42

42:
  %43 = getelementptr inbounds nuw i8, ptr %23, i64 24
  %44 = load ptr, ptr %43, align 8
  %45 = icmp eq ptr %40, %44
  br i1 %45, label %78, label %95

46:
  %47 = getelementptr inbounds nuw i8, ptr %37, i64 56
  %48 = load ptr, ptr %47, align 8
  %49 = icmp eq ptr %48, %26
  br i1 %49, label %50, label %95

50:
  %51 = getelementptr inbounds nuw i8, ptr %37, i64 64
  %52 = load i32, ptr %51, align 8
  %53 = sext i32 %52 to i64
  %54 = getelementptr inbounds nuw i8, ptr %23, i64 8
  %55 = load i64, ptr %54, align 8
  %56 = and i64 %55, %53
  %57 = icmp eq i64 %56, %55
  br i1 %57, label %58, label %95

58:
  %59 = getelementptr inbounds nuw i8, ptr %37, i64 24
  %60 = load i32, ptr %59, align 8
  %61 = sext i32 %60 to i64
  %62 = icmp eq i64 %33, %61
  br i1 %62, label %63, label %95

63:
  %64 = icmp sgt i32 %60, 0
  br i1 %64, label %65, label %80

65:
  %66 = getelementptr inbounds nuw i8, ptr %37, i64 32
  %67 = load ptr, ptr %66, align 8
  br label %71

68:
  %69 = add nuw nsw i64 %72, 1
  %70 = icmp eq i64 %69, %33
  br i1 %70, label %80, label %71

71:
  %72 = phi i64 [ 0, %65 ], [ %69, %68 ]
  %73 = getelementptr inbounds nuw i64, ptr %67, i64 %72
  %74 = load i64, ptr %73, align 8
  %75 = getelementptr inbounds nuw i64, ptr %25, i64 %72
  %76 = load i64, ptr %75, align 8
  %77 = icmp eq i64 %74, %76
  br i1 %77, label %68, label %95

78:
  %79 = getelementptr inbounds nuw i8, ptr %37, i64 16
  br label %85

80:
  %81 = getelementptr inbounds nuw i8, ptr %37, i64 16
  %82 = load ptr, ptr %81, align 8
  %83 = getelementptr inbounds nuw ptr, ptr %16, i64 %24
  store ptr %82, ptr %83, align 8
  %84 = icmp eq ptr %82, null
  br i1 %84, label %95, label %90

85:
  %86 = phi ptr [ %30, %28 ], [ %79, %78 ]
  %87 = phi ptr [ %25, %28 ], [ %35, %78 ]
  %88 = phi ptr [ %22, %28 ], [ %36, %78 ]
  %89 = getelementptr inbounds nuw ptr, ptr %16, i64 %24
  store ptr %86, ptr %89, align 8
  br label %90

90:
  %91 = phi ptr [ %35, %80 ], [ %87, %85 ]
  %92 = phi ptr [ %36, %80 ], [ %88, %85 ]
  %93 = add nuw nsw i64 %24, 1
  %94 = icmp slt i64 %93, %14
  br i1 %94, label %21, label %98

95:
  %96 = getelementptr inbounds nuw i8, ptr %5, i64 72
  %97 = load ptr, ptr %96, align 8
  tail call void @Py_IncRef(ptr %97) nounwind
  br label %192

98:
  %99 = getelementptr inbounds nuw i8, ptr %5, i64 24
  %100 = load i64, ptr %99, align 8
  %101 = icmp eq i64 %100, 0
  br i1 %101, label %102, label %134

102:
  %103 = getelementptr inbounds nuw i8, ptr %5, i64 40
  %104 = load i64, ptr %103, align 8
  %105 = icmp eq i64 %104, 0
  br i1 %105, label %106, label %115

106:
  %107 = load ptr, ptr %5, align 8
  %108 = getelementptr inbounds nuw i8, ptr %5, i64 56
  %109 = load ptr, ptr %108, align 8
  %110 = getelementptr inbounds nuw i8, ptr %5, i64 64
  %111 = load ptr, ptr %110, align 8
  %112 = getelementptr inbounds nuw i8, ptr %5, i64 32
  %113 = load i64, ptr %112, align 8
  %114 = call i32 %107(ptr %16, ptr null, ptr %109, ptr %111, i64 %113) nounwind
  br label %125

115:
  %116 = tail call ptr @PyEval_SaveThread() nounwind
  %117 = getelementptr inbounds nuw i8, ptr %5, i64 32
  %118 = load ptr, ptr %5, align 8
  %119 = getelementptr inbounds nuw i8, ptr %5, i64 56
  %120 = load ptr, ptr %119, align 8
  %121 = getelementptr inbounds nuw i8, ptr %5, i64 64
  %122 = load ptr, ptr %121, align 8
  %123 = load i64, ptr %117, align 8
  %124 = call i32 %118(ptr %16, ptr null, ptr %120, ptr %122, i64 %123) nounwind
  call void @PyEval_RestoreThread(ptr %116) nounwind
  br label %125

125:
  %126 = phi i32 [ %124, %115 ], [ %114, %106 ]
  %127 = icmp eq i32 %126, 0
  br i1 %127, label %131, label %128

128:
  %129 = sext i32 %126 to i64
  %130 = call ptr @PyLong_FromLongLong(i64 %129) nounwind
  br label %192

131:
  %132 = getelementptr inbounds nuw i8, ptr %5, i64 80
  %133 = load ptr, ptr %132, align 8
  call void @Py_IncRef(ptr %133) nounwind
  br label %192

134:
  %135 = getelementptr inbounds nuw i8, ptr %5, i64 16
  %136 = load ptr, ptr %135, align 8
  br label %137

137:
  %138 = phi i64 [ 0, %134 ], [ %154, %153 ]
  %139 = getelementptr inbounds nuw i8, ptr %136, i64 %138
  %140 = load atomic i64, ptr %139 monotonic, align 64
  %141 = icmp eq i64 %140, 0
  br i1 %141, label %142, label %153

142:
  %143 = getelementptr inbounds nuw i8, ptr %139, i64 16
  %144 = load atomic i64, ptr %143 monotonic, align 16
  %145 = icmp ult i64 %144, %100
  br i1 %145, label %153, label %146

146:
  %147 = atomicrmw xchg ptr %139, i64 1 acquire, align 64
  %148 = icmp eq i64 %147, 0
  br i1 %148, label %149, label %153

149:
  %150 = load atomic i64, ptr %143 monotonic, align 16
  %151 = icmp ult i64 %150, %100
  br i1 %151, label %152, label %158

152:
  store atomic i64 0, ptr %139 release, align 64
  br label %153

153:
  %154 = add nuw nsw i64 %138, 64
  %155 = icmp samesign ult i64 %138, 960
  br i1 %155, label %137, label %156

156:
  %157 = tail call ptr @PyLong_FromLongLong(i64 -65536) nounwind
  br label %192

158:
  %159 = getelementptr inbounds nuw i8, ptr %139, i64 8
  %160 = load ptr, ptr %159, align 8
  %161 = getelementptr inbounds nuw i8, ptr %5, i64 40
  %162 = load i64, ptr %161, align 8
  %163 = icmp eq i64 %162, 0
  br i1 %163, label %164, label %173

164:
  %165 = load ptr, ptr %5, align 8
  %166 = getelementptr inbounds nuw i8, ptr %5, i64 56
  %167 = load ptr, ptr %166, align 8
  %168 = getelementptr inbounds nuw i8, ptr %5, i64 64
  %169 = load ptr, ptr %168, align 8
  %170 = getelementptr inbounds nuw i8, ptr %5, i64 32
  %171 = load i64, ptr %170, align 8
  %172 = call i32 %165(ptr %16, ptr %160, ptr %167, ptr %169, i64 %171) nounwind
  br label %183

173:
  %174 = tail call ptr @PyEval_SaveThread() nounwind
  %175 = getelementptr inbounds nuw i8, ptr %5, i64 32
  %176 = load ptr, ptr %5, align 8
  %177 = getelementptr inbounds nuw i8, ptr %5, i64 56
  %178 = load ptr, ptr %177, align 8
  %179 = getelementptr inbounds nuw i8, ptr %5, i64 64
  %180 = load ptr, ptr %179, align 8
  %181 = load i64, ptr %175, align 8
  %182 = call i32 %176(ptr %16, ptr %160, ptr %178, ptr %180, i64 %181) nounwind
  call void @PyEval_RestoreThread(ptr %174) nounwind
  br label %183

183:
  %184 = phi i32 [ %182, %173 ], [ %172, %164 ]
  store atomic i64 0, ptr %139 release, align 64
  %185 = icmp eq i32 %184, 0
  br i1 %185, label %189, label %186

186:
  %187 = sext i32 %184 to i64
  %188 = call ptr @PyLong_FromLongLong(i64 %187) nounwind
  br label %192

189:
  %190 = getelementptr inbounds nuw i8, ptr %5, i64 80
  %191 = load ptr, ptr %190, align 8
  call void @Py_IncRef(ptr %191) nounwind
  br label %192

192:
  %193 = phi ptr [ %11, %9 ], [ %133, %131 ], [ %97, %95 ], [ %130, %128 ], [ %157, %156 ], [ %188, %186 ], [ %191, %189 ]
  ret ptr %193
}

declare ptr @PyLong_FromLongLong(i64)

define i32 @weft_run_sequence(ptr %0, ptr %1, ptr %2, ptr %3, ptr %4, i64 %5) nounwind {
  %7 = alloca %struct.weft_instant, align 8
  %8 = icmp eq ptr %4, null
  br i1 %8, label %9, label %80

9:
  %10 = tail call ptr @llvm.stacksave.p0()
  %11 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %12 = load i64, ptr %11, align 8
  %13 = shl i64 %12, 3
  %14 = alloca i8, i64 %13, align 16
  %15 = load ptr, ptr %0, align 8
  %16 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %17 = load i64, ptr %16, align 8
  %18 = shl nsw i64 %17, 3
  %19 = getelementptr inbounds i8, ptr %15, i64 %18
  %20 = icmp sgt i64 %17, 0
  br i1 %20, label %21, label %78

21:
  %22 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %23 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %24 = getelementptr inbounds nuw i8, ptr %0, i64 16
  br label %25

25:
  %26 = phi ptr [ %15, %21 ], [ %76, %73 ]
  %27 = getelementptr inbounds nuw i8, ptr %26, i64 24
  %28 = load i64, ptr %27, align 8
  %29 = icmp sgt i64 %28, 0
  br i1 %29, label %30, label %32

30:
  %31 = getelementptr inbounds nuw i8, ptr %26, i64 32
  br label %42

32:
  %33 = load ptr, ptr %24, align 8
  %34 = load i64, ptr %26, align 8
  %35 = getelementptr inbounds ptr, ptr %33, i64 %34
  %36 = load ptr, ptr %35, align 8
  %37 = getelementptr inbounds nuw i8, ptr %26, i64 16
  %38 = load i64, ptr %37, align 8
  %39 = getelementptr inbounds i8, ptr %2, i64 %38
  %40 = call i32 %36(ptr %14, ptr %39, ptr %3, ptr null, i64 %5) nounwind
  %41 = icmp eq i32 %40, 0
  br i1 %41, label %73, label %66

42:
  %43 = phi i64 [ 0, %30 ], [ %64, %61 ]
  %44 = getelementptr inbounds nuw i64, ptr %31, i64 %43
  %45 = load i64, ptr %44, align 8
  %46 = xor i64 %45, -1
  %47 = icmp sgt i64 %45, -1
  br i1 %47, label %48, label %50

48:
  %49 = getelementptr inbounds nuw i8, ptr %2, i64 %45
  br label %61

50:
  %51 = load i64, ptr %22, align 8
  %52 = icmp sgt i64 %51, %46
  br i1 %52, label %53, label %56

53:
  %54 = getelementptr inbounds nuw ptr, ptr %1, i64 %46
  %55 = load ptr, ptr %54, align 8
  br label %61

56:
  %57 = load ptr, ptr %23, align 8
  %58 = sub nsw i64 %46, %51
  %59 = getelementptr inbounds nuw ptr, ptr %57, i64 %58
  %60 = load ptr, ptr %59, align 8
  br label %61

61:
  %62 = phi ptr [ %49, %48 ], [ %55, %53 ], [ %60, %56 ]
  %63 = getelementptr inbounds nuw ptr, ptr %14, i64 %43
  store ptr %62, ptr %63, align 8
  %64 = add nuw nsw i64 %43, 1
  %65 = icmp slt i64 %64, %28
  br i1 %65, label %42, label %32

66:
  %67 = icmp sgt i32 %40, 0
  br i1 %67, label %68, label %78

68:
  %69 = getelementptr inbounds nuw i8, ptr %26, i64 8
  %70 = load i64, ptr %69, align 8
  %71 = trunc i64 %70 to i32
  %72 = add nsw i32 %40, %71
  br label %78

73:
  %74 = getelementptr inbounds nuw i8, ptr %26, i64 32
  %75 = load i64, ptr %27, align 8
  %76 = getelementptr inbounds i64, ptr %74, i64 %75
  %77 = icmp ult ptr %76, %19
  br i1 %77, label %25, label %78

78:
  %79 = phi i32 [ %72, %68 ], [ %40, %66 ], [ 0, %9 ], [ 0, %73 ]
  call void @llvm.stackrestore.p0(ptr %10)
  br label %190

80:
  %81 = getelementptr inbounds nuw i8, ptr %4, i64 8
  store i64 0, ptr %81, align 8
  call fastcc void @read_instant(ptr %7)
  %82 = load i64, ptr %81, align 8
  %83 = load i64, ptr %4, align 8
  %84 = icmp slt i64 %82, %83
  br i1 %84, label %85, label %96

85:
  %86 = load i1, ptr @weft_has_counter, align 8
  br i1 %86, label %87, label %90

87:
  %88 = tail call i64 @weft_time_stamp() nounwind
  %89 = load i64, ptr %81, align 8
  br label %90

90:
  %91 = phi i64 [ %89, %87 ], [ %82, %85 ]
  %92 = phi i64 [ %88, %87 ], [ 0, %85 ]
  %93 = getelementptr inbounds nuw i8, ptr %4, i64 16
  %94 = getelementptr inbounds i64, ptr %93, i64 %91
  store i64 %92, ptr %94, align 8
  %95 = load i64, ptr %81, align 8
  br label %96

96:
  %97 = phi i64 [ %95, %90 ], [ %82, %80 ]
  %98 = add nsw i64 %97, 1
  store i64 %98, ptr %81, align 8
  %99 = tail call ptr @llvm.stacksave.p0()
  %100 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %101 = load i64, ptr %100, align 8
  %102 = shl i64 %101, 3
  %103 = alloca i8, i64 %102, align 16
  %104 = load ptr, ptr %0, align 8
  %105 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %106 = load i64, ptr %105, align 8
  %107 = shl nsw i64 %106, 3
  %108 = getelementptr inbounds i8, ptr %104, i64 %107
  %109 = icmp sgt i64 %106, 0
  br i1 %109, label %110, label %184

110:
  %111 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %112 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %113 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %114 = getelementptr inbounds nuw i8, ptr %4, i64 16
  br label %115

115:
  %116 = phi ptr [ %104, %110 ], [ %182, %179 ]
  %117 = getelementptr inbounds nuw i8, ptr %116, i64 24
  %118 = load i64, ptr %117, align 8
  %119 = icmp sgt i64 %118, 0
  br i1 %119, label %120, label %146

120:
  %121 = getelementptr inbounds nuw i8, ptr %116, i64 32
  br label %122

122:
  %123 = phi i64 [ 0, %120 ], [ %144, %141 ]
  %124 = getelementptr inbounds nuw i64, ptr %121, i64 %123
  %125 = load i64, ptr %124, align 8
  %126 = xor i64 %125, -1
  %127 = icmp sgt i64 %125, -1
  br i1 %127, label %128, label %130

128:
  %129 = getelementptr inbounds nuw i8, ptr %2, i64 %125
  br label %141

130:
  %131 = load i64, ptr %111, align 8
  %132 = icmp sgt i64 %131, %126
  br i1 %132, label %133, label %136

133:
  %134 = getelementptr inbounds nuw ptr, ptr %1, i64 %126
  %135 = load ptr, ptr %134, align 8
  br label %141

136:
  %137 = load ptr, ptr %112, align 8
  %138 = sub nsw i64 %126, %131
  %139 = getelementptr inbounds nuw ptr, ptr %137, i64 %138
  %140 = load ptr, ptr %139, align 8
  br label %141

141:
  %142 = phi ptr [ %129, %128 ], [ %135, %133 ], [ %140, %136 ]
  %143 = getelementptr inbounds nuw ptr, ptr %103, i64 %123
  store ptr %142, ptr %143, align 8
  %144 = add nuw nsw i64 %123, 1
  %145 = icmp slt i64 %144, %118
  br i1 %145, label %122, label %146

146:
  %147 = load ptr, ptr %113, align 8
  %148 = load i64, ptr %116, align 8
  %149 = getelementptr inbounds ptr, ptr %147, i64 %148
  %150 = load ptr, ptr %149, align 8
  %151 = getelementptr inbounds nuw i8, ptr %116, i64 16
  %152 = load i64, ptr %151, align 8
  %153 = getelementptr inbounds i8, ptr %2, i64 %152
  %154 = call i32 %150(ptr %103, ptr %153, ptr %3, ptr null, i64 %5) nounwind
  %155 = load i64, ptr %81, align 8
  %156 = load i64, ptr %4, align 8
  %157 = icmp slt i64 %155, %156
  br i1 %157, label %158, label %168

158:
  %159 = load i1, ptr @weft_has_counter, align 8
  br i1 %159, label %160, label %163

160:
  %161 = call i64 @weft_time_stamp() nounwind
  %162 = load i64, ptr %81, align 8
  br label %163

163:
  %164 = phi i64 [ %162, %160 ], [ %155, %158 ]
  %165 = phi i64 [ %161, %160 ], [ 0, %158 ]
  %166 = getelementptr inbounds i64, ptr %114, i64 %164
  store i64 %165, ptr %166, align 8
  %167 = load i64, ptr %81, align 8
  br label %168

168:
  %169 = phi i64 [ %167, %163 ], [ %155, %146 ]
  %170 = add nsw i64 %169, 1
  store i64 %170, ptr %81, align 8
  %171 = icmp eq i32 %154, 0
  br i1 %171, label %179, label %172

172:
  %173 = icmp sgt i32 %154, 0
  br i1 %173, label %174, label %184

174:
  %175 = getelementptr inbounds nuw i8, ptr %116, i64 8
  %176 = load i64, ptr %175, align 8
  %177 = trunc i64 %176 to i32
  %178 = add nsw i32 %154, %177
  br label %184

179:
  %180 = getelementptr inbounds nuw i8, ptr %116, i64 32
  %181 = load i64, ptr %117, align 8
  %182 = getelementptr inbounds i64, ptr %180, i64 %181
  %183 = icmp ult ptr %182, %108
  br i1 %183, label %115, label %184

184:
  %185 = phi i32 [ %178, %174 ], [ %154, %172 ], [ 0, %96 ], [ 0, %179 ]
  call void @llvm.stackrestore.p0(ptr %99)
  %186 = load i64, ptr %81, align 8
  %187 = load i64, ptr %4, align 8
  %188 = call i64 @llvm.smin.i64(i64 %186, i64 %187)
  %189 = getelementptr inbounds nuw i8, ptr %4, i64 16
  call fastcc void @convert_ticks(ptr %189, i64 %188, ptr %7)
  br label %190

190:
  %191 = phi i32 [ %185, %184 ], [ %79, %78 ]
  ret i32 %191
}

define internal fastcc void @read_instant(ptr %0) noinline nounwind {
  %2 = load i1, ptr @weft_has_counter, align 8
  %3 = getelementptr inbounds nuw i8, ptr %0, i64 8
  br i1 %2, label %5, label %4

4:
  tail call void @llvm.memset.p0.i64(ptr align 8 %0, i8 0, i64 16, i1 false)
  br label %21

5:
  %6 = phi i64 [ %16, %15 ], [ 9223372036854775807, %1 ]
  %7 = phi i32 [ %17, %15 ], [ 0, %1 ]
  %8 = tail call i64 @weft_time_stamp() nounwind
  %9 = tail call i64 @weft_time_stamp() nounwind
  %10 = sub nsw i64 %9, %8
  %11 = icmp slt i64 %10, %6
  br i1 %11, label %12, label %15

12:
  %13 = sdiv i64 %10, 2
  %14 = add nsw i64 %13, %8
  store i64 %14, ptr %0, align 8
  store i64 0, ptr %3, align 8
  br label %15

15:
  %16 = phi i64 [ %10, %12 ], [ %6, %5 ]
  %17 = add nuw nsw i32 %7, 1
  %18 = icmp samesign ult i32 %7, 2
  %19 = icmp sgt i64 %16, 1000
  %20 = select i1 %18, i1 %19, i1 false
  br i1 %20, label %5, label %21

21:
  ret void
}

define internal fastcc void @convert_ticks(ptr %0, i64 %1, ptr %2) noinline nounwind {
  %4 = alloca %struct.weft_instant, align 8
  %5 = load i1, ptr @weft_has_counter, align 8
  br i1 %5, label %6, label %35

6:
  call fastcc void @read_instant(ptr %4)
  %7 = load i64, ptr %4, align 8
  %8 = load i64, ptr %2, align 8
  %9 = icmp sgt i64 %7, %8
  br i1 %9, label %10, label %34

10:
  %11 = getelementptr inbounds nuw i8, ptr %4, i64 8
  %12 = load i64, ptr %11, align 8
  %13 = getelementptr inbounds nuw i8, ptr %2, i64 8
  %14 = load i64, ptr %13, align 8
  %15 = sub nsw i64 %12, %14
  %16 = sitofp i64 %15 to double
  %17 = sub nsw i64 %7, %8
  %18 = sitofp i64 %17 to double
  %19 = fdiv double %16, %18
  %20 = icmp sgt i64 %1, 0
  br i1 %20, label %21, label %34

21:
  %22 = phi i64 [ %32, %21 ], [ 0, %10 ]
  %23 = load i64, ptr %13, align 8
  %24 = getelementptr inbounds nuw i64, ptr %0, i64 %22
  %25 = load i64, ptr %24, align 8
  %26 = load i64, ptr %2, align 8
  %27 = sub nsw i64 %25, %26
  %28 = sitofp i64 %27 to double
  %29 = fmul double %19, %28
  %30 = fptosi double %29 to i64
  %31 = add nsw i64 %23, %30
  store i64 %31, ptr %24, align 8
  %32 = add nuw nsw i64 %22, 1
  %33 = icmp eq i64 %32, %1
  br i1 %33, label %34, label %21

34:
  br label %35

35:
  ret void
}

define void @weft_use_counter() nounwind {
  store i1 true, ptr @weft_has_counter, align 8
  ret void
}

define i64 @weft_readings_size() nounwind {
  ret i64 72
}

define ptr @weft_begin_readings(ptr %0, ptr %1, i64 %2) nounwind {
  %4 = load ptr, ptr %1, align 8
  %5 = getelementptr inbounds nuw i8, ptr %4, i64 16
  %6 = load i64, ptr %5, align 8
  %7 = add nsw i64 %6, 2
  %8 = tail call ptr @PyType_GenericAlloc(ptr %0, i64 %7) nounwind
  %9 = icmp eq ptr %8, null
  br i1 %9, label %13, label %10

10:
  tail call void @Py_IncRef(ptr %4) nounwind
  %11 = getelementptr inbounds nuw i8, ptr %8, i64 24
  store ptr %4, ptr %11, align 8
  %12 = getelementptr inbounds nuw i8, ptr %8, i64 56
  tail call fastcc void @read_instant(ptr %12)
  br label %13

13:
  ret ptr %8
}

declare ptr @PyType_GenericAlloc(ptr, i64)

declare void @Py_IncRef(ptr)

define ptr @weft_next_reading(ptr %0) nounwind {
  %2 = getelementptr inbounds nuw i8, ptr %0, i64 48
  %3 = load i64, ptr %2, align 8
  %4 = icmp eq i64 %3, 0
  br i1 %4, label %5, label %41

5:
  %6 = load i1, ptr @weft_has_counter, align 8
  br i1 %6, label %7, label %9

7:
  %8 = tail call i64 @weft_time_stamp() nounwind
  br label %9

9:
  %10 = phi i64 [ %8, %7 ], [ 0, %5 ]
  %11 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %12 = load i64, ptr %11, align 8
  %13 = getelementptr inbounds nuw i8, ptr %0, i64 16
  %14 = load i64, ptr %13, align 8
  %15 = icmp slt i64 %12, %14
  br i1 %15, label %16, label %20

16:
  %17 = getelementptr inbounds nuw i8, ptr %0, i64 72
  %18 = add nsw i64 %12, 1
  store i64 %18, ptr %11, align 8
  %19 = getelementptr inbounds i64, ptr %17, i64 %12
  store i64 %10, ptr %19, align 8
  br label %20

20:
  %21 = getelementptr inbounds nuw i8, ptr %0, i64 32
  %22 = load i64, ptr %21, align 8
  %23 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %24 = load ptr, ptr %23, align 8
  %25 = getelementptr inbounds nuw i8, ptr %24, i64 16
  %26 = load i64, ptr %25, align 8
  %27 = icmp slt i64 %22, %26
  br i1 %27, label %28, label %34

28:
  %29 = getelementptr inbounds nuw i8, ptr %24, i64 24
  %30 = load ptr, ptr %29, align 8
  %31 = add nsw i64 %22, 1
  store i64 %31, ptr %21, align 8
  %32 = getelementptr inbounds ptr, ptr %30, i64 %22
  %33 = load ptr, ptr %32, align 8
  tail call void @Py_IncRef(ptr %33) nounwind
  br label %41

34:
  %35 = load i64, ptr %2, align 8
  %36 = icmp eq i64 %35, 0
  br i1 %36, label %37, label %41

37:
  store i64 1, ptr %2, align 8
  %38 = getelementptr inbounds nuw i8, ptr %0, i64 72
  %39 = load i64, ptr %11, align 8
  %40 = getelementptr inbounds nuw i8, ptr %0, i64 56
  tail call fastcc void @convert_ticks(ptr %38, i64 %39, ptr %40)
  br label %41

41:
  %42 = phi ptr [ null, %1 ], [ %33, %28 ], [ null, %34 ], [ null, %37 ]
  ret ptr %42
}

define ptr @weft_fail_readings(ptr returned %0, ptr %1, i64 %2) nounwind {
  %4 = load ptr, ptr %1, align 8
  %5 = getelementptr inbounds nuw i8, ptr %4, i64 48
  %6 = load i64, ptr %5, align 8
  %7 = icmp eq i64 %6, 0
  br i1 %7, label %8, label %40

8:
  %9 = load i1, ptr @weft_has_counter, align 8
  br i1 %9, label %10, label %12

10:
  %11 = tail call i64 @weft_time_stamp() nounwind
  br label %12

12:
  %13 = phi i64 [ %11, %10 ], [ 0, %8 ]
  %14 = getelementptr inbounds nuw i8, ptr %4, i64 40
  %15 = load i64, ptr %14, align 8
  %16 = getelementptr inbounds nuw i8, ptr %4, i64 16
  %17 = load i64, ptr %16, align 8
  %18 = icmp slt i64 %15, %17
  br i1 %18, label %19, label %24

19:
  %20 = getelementptr inbounds nuw i8, ptr %4, i64 72
  %21 = add nsw i64 %15, 1
  store i64 %21, ptr %14, align 8
  %22 = getelementptr inbounds i64, ptr %20, i64 %15
  store i64 %13, ptr %22, align 8
  %23 = load i64, ptr %14, align 8
  br label %24

24:
  %25 = phi i64 [ %15, %12 ], [ %23, %19 ]
  %26 = load i64, ptr %5, align 8
  %27 = icmp eq i64 %26, 0
  br i1 %27, label %28, label %32

28:
  store i64 1, ptr %5, align 8
  %29 = getelementptr inbounds nuw i8, ptr %4, i64 72
  %30 = getelementptr inbounds nuw i8, ptr %4, i64 56
  tail call fastcc void @convert_ticks(ptr %29, i64 %25, ptr %30)
  %31 = load i64, ptr %14, align 8
  br label %32

32:
  %33 = phi i64 [ %25, %24 ], [ %31, %28 ]
  %34 = load i64, ptr %16, align 8
  %35 = icmp slt i64 %33, %34
  br i1 %35, label %36, label %40

36:
  %37 = getelementptr inbounds nuw i8, ptr %4, i64 72
  %38 = add nsw i64 %33, 1
  store i64 %38, ptr %14, align 8
  %39 = getelementptr inbounds i64, ptr %37, i64 %33
  store i64 -1, ptr %39, align 8
  br label %40

40:
  tail call void @Py_IncRef(ptr %0) nounwind
  ret ptr %0
}

define i64 @weft_num_readings(ptr %0) nounwind {
  %2 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %3 = load i64, ptr %2, align 8
  ret i64 %3
}

define i32 @weft_export_readings(ptr %0, ptr %1, i32 %2) nounwind {
  %4 = getelementptr inbounds nuw i8, ptr %0, i64 72
  %5 = getelementptr inbounds nuw i8, ptr %0, i64 40
  %6 = load i64, ptr %5, align 8
  %7 = shl nsw i64 %6, 3
  %8 = tail call i32 @PyBuffer_FillInfo(ptr %1, ptr %0, ptr %4, i64 %7, i32 1, i32 %2) nounwind
  ret i32 %8
}

declare i32 @PyBuffer_FillInfo(ptr, ptr, ptr, i64, i32, i32)

define void @weft_free_readings(ptr %0) nounwind {
  %2 = getelementptr inbounds nuw i8, ptr %0, i64 8
  %3 = load ptr, ptr %2, align 8
  %4 = getelementptr inbounds nuw i8, ptr %0, i64 24
  %5 = load ptr, ptr %4, align 8
  tail call void @Py_DecRef(ptr %5) nounwind
  tail call void @PyObject_Free(ptr %0) nounwind
  tail call void @Py_DecRef(ptr %3) nounwind
  ret void
}

declare void @Py_DecRef(ptr)

declare void @PyObject_Free(ptr)

declare ptr @PyEval_SaveThread()

declare void @PyEval_RestoreThread(ptr)

declare i64 @weft_time_stamp()

declare ptr @llvm.stacksave.p0() nounwind

declare void @llvm.stackrestore.p0(ptr) nounwind

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg) nounwind

declare i64 @llvm.smin.i64(i64, i64) nounwind
